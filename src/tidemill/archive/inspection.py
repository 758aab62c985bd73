"""Check that an archive holds every offset of its log once, in the order of ingest time."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tidemill.archive.continuity import Continuity, Finding, Findings, Trouble
from tidemill.archive.missing_offsets import Gap, markers_of
from tidemill.archive.positions import Span, read_positions
from tidemill.archive.progress import ArchiveProgress, read_progress
from tidemill.iceberg.data_files import data_files, nulls_in

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from tidemill.config.archive import TableArchive


@dataclass(frozen=True)
class CheckReport:
    """Whether an archive holds every offset of its log once, in order."""

    table: str
    snapshot: int | None
    rows: int
    partitions: int
    troubles: dict[Trouble, int]  # how many rows are wrong, or how many offsets lack a row
    findings: tuple[Finding, ...]  # the first of them

    @property
    def is_clean(self) -> bool:
        """Nothing wrong was found."""
        return not self.troubles

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "table": self.table,
            "snapshot": self.snapshot,
            "clean": self.is_clean,
            "rows": self.rows,
            "partitions": self.partitions,
            "troubles": {str(each): rows for each, rows in self.troubles.items()},
            "findings": [
                {name: value for name, value in asdict(each).items() if value is not None}
                for each in self.findings
            ],
        }


def check(table: Table, archive: TableArchive, span: Span | None = None) -> CheckReport:
    """Read the position of every row whose ingest time is in the span; by default of all.

    Memory is bounded: about two million positions at a time, and one range of offsets per hole.
    The check cannot know what the log held before the first archived offset.
    """
    looked = _Check(table, archive, span or Span())
    looked.read()
    looked.finish()
    return looked.report()


class _Check:
    """One check of one snapshot."""

    def __init__(self, table: Table, archive: TableArchive, span: Span) -> None:
        self.table, self.archive, self.span = table, archive, span
        self.reached: dict[int, ArchiveProgress] = read_progress(table.metadata)
        self.gaps: dict[int, list[Gap]] = markers_of(table.metadata)
        self.findings = Findings()
        self.parts: dict[int, Continuity] = {}

    def _part(self, number: int) -> Continuity:
        if number not in self.parts:
            known = self.reached.get(number)
            after = known.next if known else 0 if self.reached else None
            gaps = self.gaps.get(number, [])
            self.parts[number] = Continuity(number, self.findings, after, gaps)
        return self.parts[number]

    def read(self) -> None:
        if self.span.is_whole:
            self._count_nulls()
        for rows in read_positions(self.table, self.archive, self.span):
            placed = rows.drop_nulls()
            if len(placed) < len(rows):
                self.findings.add(Finding(Trouble.NULL, len(rows) - len(placed)))
            for (number,), own in placed.group_by("partition"):
                self._part(int(str(number))).add(own)

    def _count_nulls(self) -> None:
        """Report rows without an ingest time. No slice reads them, but the manifests count them."""
        ingest = self.table.schema().find_field(self.archive.ingest_time)
        for file in data_files(self.table):
            if nulls := nulls_in(file, ingest):
                self.findings.add(Finding(Trouble.NULL, nulls, file=file.file_path))

    def finish(self) -> None:
        whole, end = self.span.is_whole, self.span.end
        for number in sorted({*self.parts, *self.reached, *(self.gaps if whole else ())}):
            known, part = self.reached.get(number), self._part(number)
            newest = known.ingest if known else None
            if whole and known and newest is not None and not part.rows:
                last = known.next - 1  # the summary does not say how many rows there should be
                self.findings.add(Finding(Trouble.MISSING, 1, number, last, last))
            else:
                part.finish(whole, end is None or newest is None or newest < end)

    def report(self) -> CheckReport:
        troubles, parts = self.findings.rows, self.parts.values()
        return CheckReport(
            table=".".join(self.table.name()),
            snapshot=self.table.metadata.current_snapshot_id,
            rows=sum(part.rows for part in parts) + troubles[Trouble.NULL],
            partitions=sum(1 for part in parts if part.rows),
            troubles={each: troubles[each] for each in Trouble if troubles[each]},
            findings=self.findings.first(),
        )
