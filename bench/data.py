"""The archive that all contestants read: made once, kept in .cache/bench."""

from pathlib import Path
from shutil import copyfile

import yaml
from apps.playback.generate import PLAYBACKS, generate

from tidemill.iceberg.catalog import open_catalog
from tidemill.project import Project, load

ROOT = Path(__file__).parents[1]
APP = ROOT / "apps" / "playback"
CACHE = ROOT / ".cache" / "bench"


def playback_project(rows: int, hours: int = 24) -> Project:
    """The playback app over an archive of this size."""
    folder = CACHE / f"playback-{rows}-{hours}"
    ready = folder / "ready"
    if not ready.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("pipelines.py", "plays.sql"):
            copyfile(APP / name, folder / name)
        config = yaml.safe_load((APP / "tidemill.yaml").read_text("utf-8"))
        config["spark"] = {"master": "local[2]", "memory": "2g"}
        config["pipelines"]["plays_per_show"]["max_misalignment"] = "24 h"
        (folder / "tidemill.yaml").write_text(yaml.safe_dump(config), "utf-8")
        catalog = open_catalog(load(folder / "tidemill.yaml").loaded)
        generate(catalog, rows=rows, impressions=1000, hours=hours)
        ready.touch()
    return load(folder / "tidemill.yaml")


def playback_files(project: Project) -> list[str]:
    """The data files of the playbacks, in the order of ingest time."""
    return table_files(project, PLAYBACKS)


def table_files(project: Project, name: str) -> list[str]:
    """The data files of a table, in the order of ingest time."""
    table = open_catalog(project.loaded).load_table(name)
    field = table.schema().find_field("ingest_ts").field_id
    tasks = sorted(
        table.scan().plan_files(),
        key=lambda task: int.from_bytes(task.file.lower_bounds[field], "little", signed=True),
    )
    return [task.file.file_path.removeprefix("file://") for task in tasks]
