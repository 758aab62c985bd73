"""A backfill that ended badly is begun again with the same decisions, or says why not. No Spark."""

from pathlib import Path

import pytest

from tests.bad_input.shop import FROM, TO, Shop, events, table
from tests.manifests import change
from tidemill.errors import RunError
from tidemill.iceberg.catalog import open_catalog
from tidemill.planning.manifest import Manifest
from tidemill.planning.requests import request
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lease import hold_lease
from tidemill.runtime.registry import RunState
from tidemill.runtime.starts.again import request_of, under
from tidemill.runtime.starts.starting import release


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere/java")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop.make(tmp_path)
    made.fill("logs.plays", table(events()), files=2)
    return made.know()


def begin(shop: Shop, name: str | None = None, **options: object) -> Manifest:
    starter = shop.project._starter()
    return starter.begin(request("sums", FROM, TO, **options), name, None)


def fail(shop: Shop, made: Manifest, state: RunState = RunState.FAILED) -> None:
    shop.project.registry.set_state(made.run, state, "no space")


def tags(shop: Shop) -> set[str]:
    found = open_catalog(shop.project.loaded).load_table("logs.plays")
    return {name for name in found.metadata.refs if name != "main"}


def test_it_has_the_same_manifest_under_another_id(shop: Shop) -> None:
    first = begin(shop, "nightly", slice="30 min", where="country = 'DE'", rate=500)
    fail(shop, first)
    shop.fill("logs.plays", table(events(5)))  # the archive has grown: it does not count
    made = shop.project.prepare_retry("nightly")
    assert made.of == first.run and made.replanned is None
    again = made.manifest
    assert again == under(first, again.run) != first
    assert again.sources == first.sources and again.times == first.times
    assert again.outputs.sinks["output"].place == f"marts.sums__{again.run}"
    assert first.run not in again.to_json()
    assert shop.project._folder(again.run).read_manifest() == again
    assert shop.project.registry.named("nightly") == again.run
    assert shop.project.registry.get(first.run).state is RunState.FAILED
    assert len(tags(shop)) == 2


def test_a_cancelled_run_has_let_go_of_its_snapshot_which_is_pinned_again(shop: Shop) -> None:
    first = begin(shop)
    shop.project.cancel(first.run)
    assert tags(shop) == set()
    made = shop.project.prepare_retry(first.run)
    assert made.replanned is None
    assert made.manifest.sources["plays"].snapshot == first.sources["plays"].snapshot
    assert len(tags(shop)) == 1


def test_a_snapshot_that_is_gone_is_planned_anew_with_the_reason(shop: Shop) -> None:
    first = begin(shop, slice="30 min")
    shop.project.cancel(first.run)
    shop.fill("logs.plays", table(events(5)))
    found = open_catalog(shop.project.loaded).load_table("logs.plays")
    found.maintenance.expire_snapshots().by_id(first.sources["plays"].snapshot).commit()
    made = shop.project.prepare_retry(first.run)
    assert made.replanned is not None and "had pinned is gone" in made.replanned
    assert made.manifest.sources["plays"].snapshot != first.sources["plays"].snapshot
    assert made.manifest.identity.asked == first.identity.asked
    assert made.manifest.times.output == first.times.output
    assert [each.run for each in shop.project.runs()] == [first.run, made.manifest.run]


def test_corrected_code_is_planned_anew_with_the_reason(shop: Shop) -> None:
    first = begin(shop)
    fail(shop, first)
    other = change(first, fingerprint="of another text", behaviour=("Project [wrong]",))
    path = RunFolder.of(shop.project.loaded.home, first.run).path / "manifest.json"
    path.write_text(other.to_json())
    made = shop.project.prepare_retry(first.run)
    assert made.replanned == f"the code of sums does something else than in the run {first.run}"
    assert made.manifest.code.behaviour == first.code.behaviour
    path.write_text(change(first, fingerprint="of another text").to_json())
    assert shop.project.prepare_retry(first.run).replanned is None, "only the text was another"


def test_the_request_of_a_run_is_the_one_it_was_begun_with(shop: Shop) -> None:
    options = {"slice": "30 min", "where": ("amount > 3",), "rate": 7, "warm_up": "1 h"}
    asked = request("sums", FROM, TO, **options)
    assert request_of(begin(shop, **options)) == asked


@pytest.mark.parametrize(
    ("state", "fix"),
    [
        (RunState.STOPPED, "tidemill resume"),
        (RunState.PLANNED, "tidemill resume"),
        (RunState.FINISHED, "'tidemill backfill' computes its range once more"),
    ],
)
def test_what_is_not_begun_again(shop: Shop, state: RunState, fix: str) -> None:
    first = begin(shop)
    fail(shop, first, state)
    with pytest.raises(RunError, match="only one that failed or was cancelled") as raised:
        shop.project.prepare_retry(first.run)
    assert fix in raised.value.fix


def test_a_run_that_goes_on_or_never_ends_is_not_begun_again(shop: Shop) -> None:
    first = begin(shop)
    with hold_lease(shop.project._folder(first.run).path, first.run):
        fail(shop, first)
        with pytest.raises(RunError, match="it goes on"):
            shop.project.prepare_retry(first.run)
    live = shop.project.prepare_run("sums")
    fail(shop, live)
    with pytest.raises(RunError, match="is no backfill") as found:
        shop.project.prepare_retry(live.run)
    assert "tidemill resume" in found.value.fix
    shop.project.cancel(live.run)
    with pytest.raises(RunError, match="is no backfill") as found:
        shop.project.prepare_retry(live.run)
    assert "'tidemill run sums' starts a new one" in found.value.fix


def test_a_table_with_rows_of_the_range_is_refused_unless_rows_are_appended(shop: Shop) -> None:
    first = begin(shop, into="marts.mine")
    fail(shop, first)
    made = shop.project.prepare_retry(first.run)
    assert made.manifest.outputs.sinks["output"].place == "marts.mine"
    release(open_catalog(shop.project.loaded), made.manifest)
