"""A run on disk: its folder, manifest, checkpoint, side files."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tidemill.errors import RunError
from tidemill.planning.manifest import Manifest


def new_run_id(now: datetime) -> str:
    """Sorts by time, fits into a table's name."""
    return f"{now:%Y%m%d_%H%M%S}_{secrets.token_hex(2)}"


@dataclass(frozen=True)
class RunFolder:
    """Everything a run keeps beside its tables, below ``home/runs/<run>``."""

    path: Path

    @classmethod
    def of(cls, home: Path, run: str) -> RunFolder:
        """The folder of a run; the id must be a plain name."""
        if not run or "/" in run or run.startswith("."):
            raise RunError(f"{run!r} is not a run id", fix="'tidemill runs' lists them")
        return cls(home / "runs" / run)

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint."""
        return self.path / "checkpoint"

    @property
    def side(self) -> str:
        """Where readers leave late and dead rows and counts, as a URI."""
        return (self.path / "side").absolute().as_uri()

    @property
    def state(self) -> str:
        """Where folds keep their state, as a URI."""
        return (self.checkpoint / "folds").absolute().as_uri()

    def table(self, source: str) -> Path:
        """The pinned metadata of a source's table."""
        return self.path / "tables" / f"{source}.json"

    def write_manifest(self, manifest: Manifest) -> None:
        """Once, before the run starts."""
        from tidemill.iceberg.durable import sync_files

        (self.path / "tables").mkdir(parents=True)
        draft = self.path / "manifest.json.tmp"
        draft.write_text(manifest.to_json(), "utf-8")
        sync_files([draft])
        draft.replace(self.path / "manifest.json")
        sync_files([self.path / "manifest.json", self.path])

    def has_manifest(self) -> bool:
        """Whether the run was written down."""
        return (self.path / "manifest.json").exists()

    def read_manifest(self) -> Manifest:
        """What the run decided."""
        try:
            return Manifest.from_json((self.path / "manifest.json").read_text("utf-8"))
        except FileNotFoundError:
            run = self.path.name
            raise RunError(
                f"the run {run} has lost its folder",
                where=str(self.path),
                fix="restore it from a copy; or go on for a live run with 'tidemill run PIPELINE "
                f"--recover-from-archive {run}'; or give it up with 'tidemill cancel {run}' and "
                "start again",
            ) from None
        except RunError as error:
            where = str(self.path / "manifest.json")
            raise RunError(error.message, where=where, fix=error.fix) from None
