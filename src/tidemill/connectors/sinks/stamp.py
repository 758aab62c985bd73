"""What a table says of a run's last batch, and what it means for the batch that comes now.

The stamp is a table property that a commit sets together with the files of its batch. A repeat of a
batch is the *same* batch: it has the same number, ends at the same frontiers and positions, and
began where the stamped one began. The same number alone proves nothing: a run whose checkpoint is
older than its table decides other batches under old numbers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from tidemill.errors import SinkError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

_FILES = "files"
_WATERMARK = "batchWatermarkMs"
_RARE = {"apart", "apart_before", "closed", "recovers", "code"}
"""What a stamp leaves out where there is nothing to say."""


@dataclass(frozen=True)
class BatchStamp:
    """What a commit says of its batch: enough to know it again, and to recover without state."""

    run: str
    batch: int
    frontiers: dict[str, int]
    watermark: int
    before: dict[str, int] = field(default_factory=dict)  # the frontiers of the batch before
    positions: dict[str, Any] = field(default_factory=dict)  # live: the log's own, by source
    apart: tuple[str, ...] = ()  # sources that are used twice, and one use was ahead
    apart_before: tuple[str, ...] = ()  # the same of the batch before
    closed: tuple[int, ...] = ()  # ms: the watermarks of the batch before, and of this one
    recovers: str = ""  # the lost run that this one goes on for
    code: str = ""  # what the run's code and filters do, as a digest; empty: not known

    def as_property(self, files: Sequence[DataFile] = ()) -> dict[str, str]:
        """The table property of the commit; it tells these files from others of a repeat."""
        return {property_name(self.run): self.to_json({_FILES: digest_files(files)})}

    def to_json(self, more: Mapping[str, str] | None = None) -> str:
        """The stamp as places keep it, with what a kind of sink adds."""
        told = {_WATERMARK if name == "watermark" else name: v for name, v in asdict(self).items()}
        del told["run"]  # it is in the stamp's own name
        kept = {name: found for name, found in told.items() if found or name not in _RARE}
        return json.dumps({**kept, **(more or {})}, sort_keys=True)

    @classmethod
    def from_json(cls, run: str, text: str) -> BatchStamp:
        """The inverse of :meth:`to_json`."""
        value = json.loads(text)
        told = {**value, "run": run, "watermark": value[_WATERMARK]}
        told |= {name: tuple(value.get(name, ())) for name in ("apart", "apart_before", "closed")}
        return cls(**{each.name: told[each.name] for each in fields(cls) if each.name in told})

    def is_same(self, other: BatchStamp) -> bool:
        """Whether both are of one batch: same number, same ends, same begin where both tell it."""
        if (self.batch, self.frontiers) != (other.batch, other.frontiers):
            return False
        if self.positions != other.positions:
            return False
        told = self.before.keys() & other.before.keys()
        return all(self.before[source] == other.before[source] for source in told)


def property_name(run: str) -> str:
    """The table property that holds a run's last committed batch."""
    return f"tidemill.{run}"


def read_stamp(properties: Mapping[str, str], run: str) -> BatchStamp | None:
    """The run's last commit in the table, if there is one."""
    text = properties.get(property_name(run))
    return None if text is None else BatchStamp.from_json(run, text)


def read_stamps(properties: Mapping[str, str]) -> dict[str, BatchStamp]:
    """The last commits of all runs in the table, by run."""
    prefix, found = property_name(""), {}
    for key, text in properties.items():
        if key.startswith(prefix) and f'"{_WATERMARK}"' in text:
            run = key.removeprefix(prefix)
            found[run] = BatchStamp.from_json(run, text)
    return found


def holds(properties: Mapping[str, str], run: str, files: Sequence[DataFile]) -> bool:
    """Whether these very files came with the run's last commit. No file has to be listed for it."""
    text = properties.get(property_name(run))
    return text is not None and json.loads(text).get(_FILES) == digest_files(files)


def digest_files(files: Sequence[DataFile]) -> str:
    """The names of the files in a few letters."""
    return digest(file.file_path for file in files)


def digest(names: Iterable[str]) -> str:
    """Names in a few letters: each name is used once, so together they tell a write."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:16]


def is_repeat(
    found: BatchStamp | None, ours: BatchStamp, at_start: BatchStamp | None, where: str
) -> bool:
    """Whether a place has our batch already, given its stamp now and when the driver started.

    A stamp beyond our batch is in order only while a rewound run repeats what the table had when
    the driver started. Anything else is the work of another driver, and ours must not go on.
    """
    if found is None or found.batch < ours.batch:
        return False
    if found.batch > ours.batch:
        if found == at_start:
            return True
        raise SinkError(
            f"batch {ours.batch} cannot be committed: another driver of the run {ours.run} has "
            f"committed batch {found.batch} meanwhile",
            where=where,
            fix="let only one driver go on with a run, and let this one stay stopped",
            batch=found.batch,
        )
    if found.is_same(ours):
        return True
    raise SinkError(
        f"the table has another batch {ours.batch} of the run {ours.run}: {difference(found, ours)}"
        ". The run's folder is not the one that the table was written from",
        where=where,
        fix="restore the newer copy of the run's folder, or start the pipeline with "
        f"'tidemill run PIPELINE --recover-from-archive {ours.run}'",
        batch=found.batch,
    )


def difference(found: BatchStamp, ours: BatchStamp) -> str:
    """In which value two stamps of one number differ first."""
    for name in ("frontiers", "positions", "before"):
        theirs, own = getattr(found, name), getattr(ours, name)
        for source in sorted({*theirs, *own} if name != "before" else {*theirs} & {*own}):
            if theirs.get(source) != own.get(source):
                return (
                    f"its {name} of {source} are {theirs.get(source)}, those of this one "
                    f"{own.get(source)}"
                )
    return "they differ"
