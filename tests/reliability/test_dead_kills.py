"""kill -9 between the steps of batches with failed rows: each is dead once, as if undisturbed."""

from pathlib import Path

import pytest
import yaml

from tests.reliability.scenario import RANGE, Tables, Yard

pytestmark = pytest.mark.kill
_FAILING = '''

from tidemill import process, udf
from tidemill.folds import Processor


def share(account_id):
    return 100 / (account_id % 50)


class Seen(Processor):
    output = {"account_id": "long", "at": "timestamp", "place": "long"}
    lookback = "1 d"
    delay = "0"

    def on_row(self, row, ctx):
        ctx.state["place"] = ctx.state.get("place", 0) + 1
        ctx.emit({"account_id": ctx.key, "at": ctx.time, "place": ctx.state["place"]})
        if ctx.state["place"] % 40 == 7:
            raise LookupError("no place %d" % ctx.state["place"])


@pipeline
def failing(playbacks):
    """Some rows fail in the function, some in the processor."""
    shared = playbacks.transform(udf(share, returns="double")("account_id", into="share"))
    return shared.transform(process(Seen, key="account_id"))
'''


def failing_yard(folder: Path) -> Yard:
    yard = Yard.make(folder, "failing")
    code = folder / "pipelines.py"
    code.write_text(code.read_text("utf-8") + _FAILING, "utf-8")
    config = yaml.safe_load((folder / "tidemill.yaml").read_text("utf-8"))
    config["pipelines"]["failing"] = {
        "entry": "pipelines:failing",
        "sinks": {"output": {"table": "marts.failing", "time": "at"}},
        "buckets": 3,
        "on_error": "dead",
        "max_dead": "90%",
    }
    (folder / "tidemill.yaml").write_text(yaml.safe_dump(config), "utf-8")
    return yard


def operators(tables: Tables) -> set[str]:
    return {name for name in ("udf", "process") for row in tables.dead if f"'{name}'" in row}


def test_killed_after_every_step_that_failed_rows_take(tmp_path: Path) -> None:
    """When files are written, when output or dead rows are committed, when files are gone."""
    yard = failing_yard(tmp_path)
    undisturbed = yard.tables(str(yard.run("backfill", "failing", *RANGE)["run"]))
    assert operators(undisturbed) == {"udf", "process"}
    known = yard.known_runs()
    process = yard.backfill(victim=("write", 1))
    run = yard.newest_run(process, known)
    _, err = process.communicate(timeout=300)
    assert process.returncode == -9, err
    for number, step in enumerate(("output", "dead", "failed"), 1):
        process = yard.start("resume", run, victim=(step, 1 + 2 * number))
        _, err = process.communicate(timeout=300)
        assert process.returncode == -9, err
    yard.run("resume", run)
    assert yard.tables(run) == undisturbed
