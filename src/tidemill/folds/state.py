"""The state of folds: one immutable Arrow file per (operator, batch, bucket).

Batch N reads the state of batch N-1 and writes that of batch N. The bytes are a pure function of
the rows, a file is written atomically (by rename), and no file is ever changed: a task that runs
twice, or a forgotten task of an older attempt, writes the same bytes again. Any Arrow tool opens
the files; the schema's metadata says which state a file holds.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from tidemill.errors import RunError
from tidemill.runfolder.folder import ARROW, STATE_VERSION, numbered
from tidemill.storage.location import Location

BEFORE = -1
"""The version with which the first batch begins, if the state was carried from another run."""
_LABEL = b"tidemill.state"
_SUM = b"tidemill.checksum"


@dataclass(frozen=True)
class Label:
    """The description inside a state file."""

    operator: str
    kind: str
    batch: int
    bucket: int
    buckets: int
    watermark: int
    keys: tuple[str, ...]
    time: str


@dataclass(frozen=True)
class StateFiles:
    """The versions of all folds of a run, below a URI of any Arrow filesystem."""

    uri: str
    run: str = "RUN"  # the run in the commands that an error suggests

    def write(self, label: Label, table: pa.Table) -> int:
        """Write one bucket's version; returns its bytes. Executor."""
        table = _canonical(table)
        about = {_LABEL: json.dumps(asdict(label), sort_keys=True), _SUM: str(_checksum(table))}
        table = table.replace_schema_metadata(about)
        name = _name(label.operator, label.batch, label.bucket)
        (Location(self.uri) / name).write_arrow(table.schema, table.to_batches())
        return int(table.nbytes)

    def read(self, operator: str, batch: int, bucket: int) -> tuple[Label, pa.Table]:
        """Read one bucket's version and verify it; an error says what is wrong and what to do."""
        name = _name(operator, batch, bucket)
        try:
            table = (Location(self.uri) / name).read_arrow()
            about = table.schema.metadata or {}
            kept, expected = json.loads(about[_LABEL]), int(about[_SUM])
            label = Label(**{**kept, "keys": tuple(kept["keys"])})
        except FileNotFoundError:
            raise self._gone(name, batch, "is missing") from None
        except (pa.ArrowInvalid, OSError, KeyError, ValueError) as error:
            raise self._gone(name, batch, f"is damaged ({error})") from None
        if _checksum(table) != expected:
            raise self._gone(name, batch, "is damaged (its checksum differs)")
        if (label.operator, label.batch, label.bucket) != (operator, batch, bucket):
            raise self._gone(name, batch, f"is the state of {label.operator}, batch {label.batch}")
        return label, table.replace_schema_metadata(None)

    def operators(self) -> list[str]:
        """The folds that have state."""
        return sorted(self._folders(""))

    def batches(self, operator: str) -> list[int]:
        """The versions that are kept, oldest first."""
        return sorted(int(name) for name in self._folders(operator) if name.isdecimal())

    def buckets(self, operator: str, batch: int) -> list[tuple[int, int]]:
        """(bucket, bytes) of one version."""
        sizes = (Location(self.uri) / _version(operator, batch)).sizes()
        return sorted(
            (int(name.removesuffix(ARROW)), size or 0)
            for name, size in sizes.items()
            if name.endswith(ARROW)
        )

    def remove(self, operator: str, batch: int) -> None:
        """Drop one version. Driver."""
        (Location(self.uri) / _version(operator, batch)).remove_folder()

    def forget(self, before: int) -> None:
        """Drop the versions of batches before this one."""
        for operator in self.operators():
            for batch in self.batches(operator):
                if batch < before:
                    self.remove(operator, batch)

    def _gone(self, name: str, batch: int, what: str) -> RunError:
        if batch == BEFORE:
            return RunError(
                f"the carried fold state {name} {what}",
                where=self.uri,
                fix=f"'tidemill cancel {self.run}', and upgrade or start again from the state",
                state=name,
            )
        return RunError(
            f"the fold state {name} {what}",
            where=self.uri,
            fix=f"tidemill rewind {self.run} --to-batch {max(batch - 1, 0)} (without it: the last "
            f"batch whose state is whole), then tidemill resume {self.run}",
            state=name,
            batch=batch,
        )

    def _folders(self, below: str) -> list[str]:
        return [name for name, size in Location(self.uri, below).sizes().items() if size is None]


def _version(operator: str, batch: int) -> str:
    return STATE_VERSION.format(operator=operator, batch=batch)


def _name(operator: str, batch: int, bucket: int) -> str:
    return numbered(_version(operator, batch), bucket)


def checksum_of(table: pa.Table) -> int:
    """A checksum of the rows, the same for equal rows."""
    return _checksum(_canonical(table.replace_schema_metadata(None)))


def _checksum(table: pa.Table) -> int:
    """A checksum of the rows' bytes as they are in a file."""
    found = 0
    for batch in table.to_batches():
        found = zlib.crc32(batch.replace_schema_metadata(None).serialize(), found)
    return found


def _canonical(table: pa.Table) -> pa.Table:
    """The table as one chunk, without leftover values behind nulls: equal rows, equal bytes."""
    return table.combine_chunks().take(pa.array(np.arange(len(table)))).combine_chunks()
