"""A backfill and a live run put together by hand: tables, manifests, stamps, registry. No Spark."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.bad_input.terminal import Outcome, run_cli
from tests.cli.stage import OUTPUT, OUTPUT_SCHEMA, Stage
from tests.manifests import make_manifest, make_pin
from tidemill.connectors.sinks.iceberg.commit import BatchStamp, commit_files
from tidemill.connectors.sinks.iceberg.section import table_pin
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.connectors.sinks.writing import write_files
from tidemill.iceberg.catalog import open_catalog
from tidemill.planning.manifest import Manifest
from tidemill.rows.verdict import SIDE_SCHEMA
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.registry import RunState
from tidemill.types import MILLISECOND, micros_of, to_micros

T0 = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
LATENESS = timedelta(minutes=10)
RUN, LIVE = "20260102_000000_aaaa", "20260101_000000_bbbb"
PRODUCTION, SHADOW = "marts.output", f"marts.output__{RUN}"
WINDOW = timedelta(minutes=10)


def at(minutes: float) -> datetime:
    """So many minutes after the start."""
    return T0 + timedelta(minutes=minutes)


def row(minutes: float, key: int | None = 7, word: str | None = "w") -> dict[str, Any]:
    """A row of the output."""
    return {"at": at(minutes), "key": key, "word": word}


@dataclass(frozen=True)
class Review:
    """A project whose backfill RUN is compared with what the run LIVE wrote."""

    stage: Stage
    schema: pa.Schema = field(default=OUTPUT_SCHEMA)

    @classmethod
    def make(cls, folder: Path) -> "Review":
        """A project without runs."""
        return cls(Stage.make(folder))

    @property
    def project(self) -> Any:
        """The project."""
        return self.stage.project

    def run(
        self, run: str, table: str, *, code: str = "same", lateness: timedelta = LATENESS,
        ends: bool = True, begin: datetime = T0, hours: float = 24,
        key: tuple[str, ...] = ("key", "at"), boundaries: tuple[datetime, ...] | None = None,
        late: str | None = None, **more: Any,
    ) -> Manifest:  # fmt: skip
        """Write a run's manifest and its entry in the registry."""
        marks = boundaries if boundaries is not None else (begin, begin + hours * HOUR)
        pin = make_pin("plays", None, "event_ts", "ingest_ts", lateness=micros_of(lateness))
        late = late or table
        planned = marks[-1] + 24 * HOUR if ends else T0  # all input of a backfill has happened
        manifest = make_manifest(
            run=run, pipeline="pipeline", created=to_micros(planned), ends=ends,
            output=(to_micros(begin), to_micros(begin + hours * HOUR)),
            boundaries=tuple(map(to_micros, marks)), sources={"plays": pin},
            sinks={"output": table_pin(table, OUTPUT, "at", key)},
            late_table=f"{late}__late", dead_table=f"{late}__dead",
            behaviour=(code,), warm_up=0, look_ahead=micros_of(WINDOW), **more,
        )  # fmt: skip
        RunFolder.of(self.project.loaded.home, run).write_manifest(manifest)
        self.project.registry.add(run, "pipeline", "backfill" if ends else "live")
        self.project.registry.set_state(run, RunState.FINISHED if ends else RunState.RUNNING)
        return manifest

    def write(
        self, manifest: Manifest, rows: list[dict[str, Any]], read: datetime = T0 + 24 * HOUR,
        *, table: str | None = None, schema: pa.Schema | None = None, batch: int = 0,
    ) -> None:  # fmt: skip
        """Commit rows of a run, which has read so far."""
        catalog, schema = open_catalog(self.project.loaded), schema or self.schema
        name = table or manifest.outputs.sinks["output"].place
        made = ensure_table(catalog, name, schema, None, "none")
        found = pa.Table.from_pylist(rows, schema=schema)
        files = write_files(made.metadata, made.io, found) if rows else []
        stamp = BatchStamp(
            manifest.run, batch, {"plays": to_micros(read)}, to_micros(read) // MILLISECOND,
            code=manifest.code_digest,
        )  # fmt: skip
        commit_files(catalog, name, stamp, files)

    def put_aside(self, manifest: Manifest, *rows: dict[str, Any], dead: bool = False) -> None:
        """Late or dead rows of a run."""
        name = manifest.outputs.dead_table if dead else manifest.outputs.late_table
        self.write(manifest, list(rows), table=name, schema=SIDE_SCHEMA)

    def cli(self, *arguments: object) -> Outcome:
        """A command in the project's folder."""
        return run_cli(*arguments, cwd=self.project.loaded.path.parent)

    def compare(self, **options: Any) -> Any:
        """The comparison of RUN as JSON has it."""
        return self.project.review.compare(RUN, **options).to_json()


def aside(minutes: float, key: int = 7, reason: str = "late", **more: Any) -> dict[str, Any]:
    """A row of a late table: an input row of the key."""
    return {
        "source": "plays", "reason": reason, "partition": 0, "offset": round(minutes * 10),
        "ingest_time": at(minutes + 30), "event_time": at(minutes),
        "row": f'{{"event_ts": "x", "key": {key}}}', **more,
    }  # fmt: skip


__all__ = ["LIVE", "PRODUCTION", "RUN", "SHADOW", "Review", "aside", "at", "replace", "row"]
