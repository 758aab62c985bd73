"""A project without Spark: production, backfills with shadows beside it, live runs."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.bad_input.terminal import Outcome
from tests.cli.stage import OUTPUT, OUTPUT_SCHEMA, Stage
from tests.manifests import make_manifest
from tidemill.connectors.sinks.iceberg.commit import BatchStamp, commit_files
from tidemill.connectors.sinks.iceberg.section import table_pin
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.connectors.sinks.writing import write_files
from tidemill.iceberg.catalog import open_catalog
from tidemill.planning.manifest import Manifest
from tidemill.review.desk import ReviewDesk
from tidemill.runfolder.compared import ComparedOutput, write_compared
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.registry import BatchRecord, RunState

A, B, LIVE = "20260101_120000_ab12", "20260102_120000_cd34", "20260103_120000_ef56"
HOUR = 3_600_000_000
T0 = 1_767_225_600_000_000  # 2026-01-01T00:00Z
NOW = T0 + 48 * HOUR  # when runs were planned
SPAN = (T0 + 10 * HOUR, T0 + 20 * HOUR)
PLACE = "marts.output"
Row = tuple[float, int, str]
"""Hours after T0, a key, a word."""


@dataclass
class DeskYard:
    stage: Stage
    batches: dict[str, int] = field(default_factory=dict)

    @classmethod
    def make(cls, folder: Path) -> "DeskYard":
        made = cls(Stage.make(folder))
        made.put(PLACE, "somebody", (9.0, 1, "old"), (11.0, 2, "old"), (21.0, 3, "old"))
        return made

    @property
    def desk(self) -> ReviewDesk:
        return self.stage.project.review

    @property
    def catalog(self) -> Any:
        return open_catalog(self.stage.project.loaded)

    def put(self, name: str, run: str, *rows: Row, watermark: int = 2**50) -> None:
        table = ensure_table(self.catalog, name, OUTPUT_SCHEMA, None, "none")
        hours, keys, words = zip(*rows, strict=True)
        times = pa.array([T0 + round(hour * HOUR) for hour in hours], pa.int64())
        made = pa.table(
            [times.cast(OUTPUT_SCHEMA.field("at").type), list(keys), list(words)],
            schema=OUTPUT_SCHEMA,
        )
        self.batches[run] = self.batches.get(run, 0) + 1
        stamp = BatchStamp(run, self.batches[run], {}, watermark)
        commit_files(self.catalog, name, stamp, write_files(table.metadata, table.io, made))

    def run(
        self,
        run: str,
        places: dict[str, str] | None = None,
        state: RunState = RunState.FINISHED,
        span: tuple[int, int] = SPAN,
        **times: Any,
    ) -> RunFolder:
        """A run's folder and entry, without tables."""
        sinks = places or {"output": f"{PLACE}__{run}"}
        manifest: Manifest = make_manifest(
            run=run,
            pipeline="pipeline",
            sinks={name: table_pin(at, OUTPUT, "at", ("key",)) for name, at in sinks.items()},
            **{"output": span, "boundaries": span, "look_ahead": 0, "created": NOW, **times},
        )
        folder = RunFolder.of(self.stage.project.loaded.home, run)
        folder.write_manifest(manifest)
        self.stage.project.registry.add(
            run, "pipeline", "backfill" if manifest.times.ends else "live"
        )
        self.stage.project.registry.set_state(run, state)
        return folder

    def backfill(self, run: str = A, **options: Any) -> RunFolder:
        """A finished backfill of hours 10 to 20, with two rows in its shadow."""
        folder = self.run(run, **options)
        self.put(f"{PLACE}__{run}", run, (11.0, 2, run), (12.0, 4, run))
        return folder

    def live(self, hours: float | None, look_ahead: int = 0) -> None:
        """A live run into production whose watermark is so many hours after T0."""
        self.run(
            LIVE, {"output": PLACE}, RunState.RUNNING, (0, 2**62), ends=False, look_ahead=look_ahead
        )
        if hours is not None:
            at = T0 + round(hours * HOUR)
            record = BatchRecord(0, at, at // 1_000, 1, 0, 0, 1, 0, 0.0)
            self.stage.project.registry.record_batch(LIVE, record)

    def compared(self, run: str = A, match: float = 50.0) -> None:
        """What a comparison of the state of now would have left."""
        folder = RunFolder.of(self.stage.project.loaded.home, run)
        here, there = self.snapshot(f"{PLACE}__{run}"), self.snapshot(PLACE)
        found = ComparedOutput("output", PLACE, there, here, SPAN, 1, 0, 1, 0, match, 0)
        write_compared(folder, [found])

    def snapshot(self, name: str) -> int | None:
        return self.catalog.load_table(name).metadata.current_snapshot_id  # type: ignore[no-any-return]

    def rows(self, name: str = PLACE) -> list[tuple[float, int, str]]:
        found = self.catalog.load_table(name).scan().to_arrow().to_pydict()
        times = [(round(at.timestamp() * 1e6) - T0) / HOUR for at in found["at"]]
        return sorted(zip(times, found["key"], found["word"], strict=True))

    def cli(self, *arguments: object) -> Outcome:
        return self.stage.cli(*arguments)
