"""Call the user's functions around the commit of a batch, and stop the run if one of them fails."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NoReturn

from tidemill.errors import RunError
from tidemill.pipeline import BatchCommit, NamedFunction
from tidemill.runfolder.called import Called
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.retrying import BrokenOffError
from tidemill.runtime.code.calls import own_file
from tidemill.runtime.code.importing import describe
from tidemill.runtime.driving.beside import Breaker

BEFORE, AFTER = "before_commit", "after_commit"


@dataclass
class Callbacks:
    """The callbacks of a run, by key. Each is called in a thread of its own, and waited for.

    ``breaker`` leaves a call that goes on, when the run is told to end: as with a driver that is
    killed, the function may have done its work or not, and it is called again as a repeat.
    """

    functions: Mapping[str, NamedFunction]
    folder: RunFolder
    breaker: Breaker = field(default_factory=Breaker)

    def call(self, key: str, told: BatchCommit) -> None:
        """Call the function of this key, if there is one. RunError if it fails.

        ``told.repeat`` says what is known beside the note: that another run gave these rows.
        """
        named = self.functions.get(key)
        if named is None:
            return
        is_noted = Called(self.folder.path).note(key, told.batch)
        told = replace(told, repeat=told.repeat or is_noted)
        try:
            self.breaker.run(partial(_run, named, told), lambda: _left(key, named, told))
        except _FailedError as failed:
            _refuse(key, named, told, failed.why)


class _FailedError(Exception):
    """What the user's function has raised, whatever it is."""

    def __init__(self, why: BaseException) -> None:
        super().__init__(why)
        self.why = why


def _run(named: NamedFunction, told: BatchCommit) -> None:
    try:
        named.function(told)
    except BaseException as error:
        raise _FailedError(error) from error


def _left(key: str, named: NamedFunction, told: BatchCommit) -> BrokenOffError:
    return BrokenOffError(
        f"{key} {named.name} did not return for batch {told.batch}, and was left because the run "
        "was told to end",
        fix=f"'tidemill resume {told.run}' runs the batch again, with the same rows, and calls it "
        "again with repeat=True",
    )


def _refuse(key: str, named: NamedFunction, told: BatchCommit, why: BaseException) -> NoReturn:
    """Stop the run: the error names function, file and line, and says what resume will do."""
    file, line = _place(named, why)
    place = "" if file is None else f" ({file.name}:{line})"
    again = f"'tidemill resume {told.run}' runs the batch again, with the same rows, and calls it "
    raise RunError(
        f"{key} {named.name} failed for batch {told.batch}: {_text(why, named)}; "
        f"{_state(key, told.repeat)}",
        where=f"pipeline {told.pipeline}{place}",
        fix=f"correct it or what it asks for, then {again}again with repeat=True",
        function=named.name,
        file="" if file is None else str(file),
        line=line,
        batch=told.batch,
    ) from why


def _state(key: str, is_repeat: bool) -> str:
    if key == AFTER:
        return "the batch is committed and stays so"
    if is_repeat:
        return "nothing more of the batch was committed than before"
    return "nothing of the batch was committed"


def _text(why: BaseException, named: NamedFunction) -> str:
    told = describe(why, Path("/nowhere"))
    return told.rstrip(": ") if not str(why) else told


def _place(named: NamedFunction, why: BaseException) -> tuple[Path | None, int | None]:
    """The last line in the folder of the function's file that the error came through."""
    file = own_file(named.function)
    if file is None:
        return None, None
    frames = [
        (Path(frame.filename), frame.lineno)
        for frame in traceback.extract_tb(why.__traceback__)
        if Path(frame.filename).is_relative_to(file.parent)
        and "site-packages" not in Path(frame.filename).parts
    ]
    return frames[-1] if frames else (file, None)
