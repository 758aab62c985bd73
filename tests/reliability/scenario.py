"""One backfill, disturbed in many ways; what it leaves must equal an undisturbed one."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from tidemill.iceberg.catalog import find_table, open_catalog
from tidemill.project import Project, load
from tidemill.starter.writing import write_starter
from tidemill.testing import collect

RANGE = ("--from", "2026-01-01T00:00Z", "--to", "2026-01-01T12:00Z", "--slice", "1h")
SLICES = 13
ROOT = Path(__file__).parents[2]
_FOLDS = '''

from tidemill import deduplicate, sessions


@pipeline
def viewing(playbacks):
    """Two folds, one behind the other."""
    once = playbacks.transform(deduplicate(key=["account_id", "show_id"], within="2 min"))
    agg = {"plays": "count", "shows": ("n_unique", "show_id")}
    return once.transform(sessions(key="account_id", gap="20 min", max_length="3 h", agg=agg))
'''


@dataclass(frozen=True)
class Tables:
    """The rows of a run, as multisets."""

    output: Counter[str]
    late: Counter[str]
    dead: Counter[str]
    rows: dict[str, int]


@dataclass(frozen=True)
class Yard:
    """A project to disturb."""

    folder: Path
    pipeline: str = "plays_per_show"

    @classmethod
    def make(cls, folder: Path, pipeline: str = "plays_per_show") -> "Yard":
        """The starter, and a pipeline of folds beside its own."""
        write_starter(folder)
        code = folder / "pipelines.py"
        code.write_text(code.read_text("utf-8") + _FOLDS, "utf-8")
        config = yaml.safe_load((folder / "tidemill.yaml").read_text("utf-8"))
        sink = {"table": "marts.viewing", "time": "session_start"}
        config["pipelines"]["viewing"] = {
            "entry": "pipelines:viewing",
            "sinks": {"output": sink},
            "buckets": 3,
        }
        (folder / "tidemill.yaml").write_text(yaml.safe_dump(config), "utf-8")
        return cls(folder, pipeline)

    @property
    def project(self) -> Project:
        return load(self.folder / "tidemill.yaml")

    def start(self, *command: str, victim: tuple[str, int] | None = None) -> subprocess.Popen[str]:
        """A driver in a process of its own."""
        module = "tidemill" if victim is None else "tests.reliability.victim"
        before = [] if victim is None else [victim[0], str(victim[1])]
        runner = ["-c", "from tidemill.cli.main import main; main()"] if victim is None else []
        arguments = [sys.executable, *(runner or ["-m", module]), *before, *command, "--json"]
        return subprocess.Popen(
            [*arguments, "--config", str(self.folder / "tidemill.yaml")],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def run(self, *command: str) -> dict[str, object]:
        """Run to the end; its JSON."""
        process = self.start(*command)
        out, err = process.communicate(timeout=600)
        assert process.returncode == 0, err
        return dict(json.loads(out))

    def backfill(self, victim: tuple[str, int] | None = None) -> subprocess.Popen[str]:
        return self.start("backfill", self.pipeline, *RANGE, victim=victim)

    def newest_run(self, process: subprocess.Popen[str], known: set[str]) -> str:
        """The id of the run a driver has just begun."""
        while process.poll() is None:
            fresh = [r.run for r in self.project.registry.runs() if r.run not in known]
            if fresh:
                return fresh[0]
            time.sleep(0.05)
        raise AssertionError(process.communicate()[1])

    def known_runs(self) -> set[str]:
        return {record.run for record in self.project.registry.runs()}

    def kill_at(self, process: subprocess.Popen[str], run: str, batches: int, wait: float) -> bool:
        """kill -9 the driver (not its JVM) some time after a batch; False if it had ended."""
        while process.poll() is None:
            if self.project.registry.totals(run).batches >= batches:
                time.sleep(wait)
                break
            time.sleep(0.02)
        if process.poll() is not None:
            return False
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True

    def await_batch(self, process: subprocess.Popen[str], run: str, batches: int) -> None:
        """Until this many batches are committed, or the driver has ended."""
        while process.poll() is None and self.project.registry.totals(run).batches < batches:
            time.sleep(0.02)

    def kill_worker_at(self, process: subprocess.Popen[str], run: str, batches: int) -> bool:
        """kill -9 a Python worker of Spark's some time after a batch; False if there was none."""
        while process.poll() is None:
            if self.project.registry.totals(run).batches >= batches:
                found = list(_workers(process.pid))
                if found:
                    random.Random(batches).choice(found).kill()
                    return True
            time.sleep(0.02)
        return False

    def tables(self, run: str) -> Tables:
        """What the run left; fails if a data file is referenced twice."""
        catalog = open_catalog(self.project.loaded)
        result = self.project.status(run)
        found = []
        read = collect(self.project, result)
        for name, rows in (
            (result.outputs["output"], read.output),
            (result.late, read.late),
            (result.dead, read.dead),
        ):
            table = find_table(catalog, name)  # a table of late or dead rows only if there are any
            if table is not None:
                tasks = table.scan().plan_files()
                files = [task.file.file_path for task in tasks]
                assert len(files) == len(set(files)), f"{name} refers to a file twice"
            found.append(Counter(repr(row) for row in rows.to_pylist()))
        totals = result.totals
        rows = {"in": totals.read, "late": totals.late, "dead": totals.dead, "out": totals.out}
        assert totals.out == found[0].total(), "the registry's count of rows out"
        assert totals.late == found[1].total(), "the registry's count of late rows"
        batches = self.project.metrics(run).batches
        assert sum(batch.rows for batch in batches) == totals.read, "rows in the metrics"
        written = sum(each.rows for batch in batches for each in batch.writing.values())
        assert written == totals.out, "rows out in the metrics"
        return Tables(*found, rows)


def random_kills(yard: Yard, seed: int, slices: int = SLICES) -> tuple[str, list[str]]:
    """Kill the driver at a random moment, resume (sometimes two at once), maybe kill again."""
    chance = random.Random(seed)
    story = []
    known = yard.known_runs()
    process = yard.backfill()
    run = yard.newest_run(process, known)
    for _ in range(chance.randint(1, 2)):
        batches, wait = chance.randrange(slices - 2), chance.random() * 1.2
        if not yard.kill_at(process, run, batches, wait):
            break
        story.append(f"killed {wait:.2f} s after batch {batches}")
        process = yard.start("resume", run)
        if chance.random() < 0.5:
            second = yard.start("resume", run)
            story.append("two resumes at once")
            _await_one(process, second)
            process = process if process.poll() is None else second
    _, err = process.communicate(timeout=600)
    if process.returncode != 0:
        assert "is finished" in err or "driven by another process" in err, err
    assert yard.project.status(run).state == "finished", err
    return run, story


def worker_kills(yard: Yard, seed: int, slices: int = SLICES) -> tuple[str, list[str]]:
    """Kill Python workers while folds run; a run that fails of it is resumed."""
    chance = random.Random(seed)
    story = []
    known = yard.known_runs()
    process = yard.backfill()
    run = yard.newest_run(process, known)
    for batches in sorted(chance.sample(range(1, slices - 2), 2)):
        if yard.kill_worker_at(process, run, batches):
            story.append(f"killed a worker after batch {batches}")
        yard.await_batch(process, run, batches + 1)
        if process.poll() is not None and process.returncode != 0:
            process = yard.start("resume", run)
    _, err = process.communicate(timeout=600)
    if yard.project.status(run).state != "finished":
        yard.run("resume", run)
    assert yard.project.status(run).state == "finished", err
    return run, story


def _workers(driver: int) -> Iterator[psutil.Process]:
    """The forked workers of the daemon: processes whose parent is a daemon as well."""
    for process in psutil.Process(driver).children(recursive=True):
        try:
            parent = process.parent()
            if parent and all("daemon" in " ".join(p.cmdline()) for p in (process, parent)):
                yield process
        except psutil.Error:
            continue


def _await_one(first: subprocess.Popen[str], second: subprocess.Popen[str]) -> None:
    """One of two drivers must step back at once; the other one drives."""
    while first.poll() is None and second.poll() is None:
        time.sleep(0.05)
    loser = first if first.poll() is not None else second
    assert loser.returncode != 0
    assert "driven by another process" in loser.communicate()[1]
