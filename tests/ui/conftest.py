"""A site over a project whose runs are written by hand: hostile rows, and a secret everywhere."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
import yaml

from tests.cli.stage import T0, Stage, late_row
from tests.manifests import change
from tests.ui.site import Site, Visitor, served
from tidemill import load
from tidemill.runfolder.driver_log import DriverLog
from tidemill.runtime.registry import BatchRecord, RunState
from tidemill.types import to_micros

RUN, FAILED = "20260101_000000_aaaa", "20260101_000000_bbbb"
SCRIPT = '<script>alert("x")</script><img src=x onerror=alert(1)>'
CANARY = "canary&<7>'secret\""


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Rows, errors and logs with scripts, with a secret, very long ones, and binary."""
    patch = pytest.MonkeyPatch()
    patch.setenv("CANARY", CANARY)
    folder = tmp_path_factory.mktemp("hostile")
    made = Stage.make(folder)
    path = made.project.loaded.path
    text = yaml.safe_load(path.read_text())
    text["spark"] = {**text["spark"], "conf": {"spark.canary": "${CANARY}"}}
    path.write_text(yaml.safe_dump(text))
    stage = Stage(load(path))
    for run in (RUN, FAILED):
        late = [late_row(11, row=f'{{"word": "{SCRIPT}"}}'), late_row(12, row=f"{CANARY}\x00\xff")]
        kept = stage.run(run, late, on_time=5, dead=1)
        output = (to_micros(T0), to_micros(T0) + 10**10)
        manifest = change(kept.read_manifest(), output=output)
        (kept.path / "manifest.json").write_text(manifest.to_json())
        words = (SCRIPT, CANARY, "long " * 500, "\x00\x07 binary")
        rows = [{"at": T0 + timedelta(minutes=n), "key": n, "word": w} for n, w in enumerate(words)]
        stage.write(f"marts.output__{run}", rows)
        DriverLog(kept.path).write(f"began {SCRIPT} with {CANARY}")
        batch = BatchRecord(1, to_micros(T0) + 1, 0, 5, 1, 0, 4, 0, 0.5)
        stage.project.registry.record_batch(run, batch)
    stage.project.registry.set_state(RUN, RunState.FINISHED)
    error = f"the code failed: {SCRIPT} {CANARY}"
    stage.project.registry.set_state(FAILED, RunState.FAILED, error)
    yield stage
    patch.undo()


@pytest.fixture(scope="session")
def site(hostile: Stage) -> Iterator[Site]:
    with served(hostile.project) as made:
        yield made


@pytest.fixture
def visitor(site: Site) -> Visitor:
    """Somebody with the link."""
    return site.visitor().enter()


PAGES = (
    "/",
    "/runs",
    "/runs?pipeline=pipeline&state=failed",
    f"/runs/{RUN}",
    f"/runs/{FAILED}",
    f"/runs/{RUN}/rows",
    f"/runs/{RUN}/rows?output=late",
    f"/runs/{RUN}/rows?where=nonsense+%3Cscript%3E",
    f"/runs/{RUN}/late",
    f"/runs/{RUN}/state",
    f"/runs/{RUN}/review",
    f"/runs/{RUN}/review?look=publish",
    "/pipelines/pipeline",
)
