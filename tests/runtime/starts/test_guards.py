"""Before a run begins: nothing is written twice, and nothing into a source. No Spark is started."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.bad_input.shop import FROM, SCHEMA, T0, TO, YAML, Shop, events, table
from tests.manifests import change
from tidemill.archive.progress import ArchiveProgress, to_summary
from tidemill.connectors.sinks.contract import SinkRun
from tidemill.connectors.sinks.iceberg.table import count_rows
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.connectors.sinks.stamp import BatchStamp
from tidemill.errors import ConfigError, PlanError
from tidemill.planning.carrying import SourcePoint, StatePoint
from tidemill.planning.plan import RunPlan
from tidemill.rows.verdict import SIDE_SCHEMA
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.registry import RunState
from tidemill.runtime.starts.guards import require_not_beyond, require_only_live_run
from tidemill.types import FOREVER_MICROS

OUT = pa.schema(
    [("t", pa.timestamp("us", "UTC")), ("key", pa.int64()), ("n", pa.int64()), ("s", pa.int64())]
)


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere/java")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop.make(tmp_path)
    made.fill("logs.plays", table(events()), files=2)
    return made.know()


def put(shop: Shop, name: str, *moments: timedelta) -> None:
    """A table with rows of these times, all in one file."""
    made = ensure_table(shop.catalog, name, OUT, None, "none")
    rows = [{"t": T0 + moment, "key": 1, "n": 1, "s": 1} for moment in moments]
    made.append(pa.Table.from_pylist(rows, OUT))


def backfill(shop: Shop, **options: object) -> RunPlan:
    return shop.project.plan("sums", FROM, TO, **options)


HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("moments", "refused"),
    [
        ([HOUR], True),
        ([timedelta()], True),  # the start is included
        ([2 * HOUR], False),  # the end is not
        ([-HOUR, HOUR, 3 * HOUR], True),
        ([-HOUR, 3 * HOUR], False),  # the file's range covers [from, to), no row of it does
    ],
)
def test_into_a_table_that_has_rows_of_the_range(shop, moments, refused):
    put(shop, "marts.again", *moments)
    plan = backfill(shop, into="marts.again")
    if refused:
        with pytest.raises(PlanError, match=r"has rows with t in \[2026-01-01T00:00Z") as raised:
            shop.project.prepare(plan)
        assert "--append" in raised.value.fix
        assert shop.project.runs() == []
    else:
        shop.project.prepare(plan)
    shop.project.prepare(backfill(shop, into="marts.again", append=True))


@pytest.mark.parametrize("name", ["marts.again__late", "marts.again__dead"])
@pytest.mark.parametrize(("moment", "refused"), [(HOUR, True), (-HOUR, False), (2 * HOUR, False)])
def test_into_a_table_whose_late_or_dead_rows_of_the_range_are_there(shop, name, moment, refused):
    """They belong to a range by their ingest time."""
    made = ensure_table(shop.catalog, name, SIDE_SCHEMA, None, "none")
    row = {"source": "plays", "reason": "late", "ingest_time": T0 + moment}
    made.append(pa.Table.from_pylist([row], SIDE_SCHEMA))
    plan = backfill(shop, into="marts.again")
    if refused:
        with pytest.raises(PlanError, match=f"{name}' has rows with ingest_time in"):
            shop.project.prepare(plan)
    else:
        shop.project.prepare(plan)
    shop.project.prepare(backfill(shop, into="marts.again", append=True))


def test_the_runs_that_wrote_the_rows_are_named(shop):
    put(shop, "marts.again", HOUR)
    before = shop.project.prepare(backfill(shop, into="marts.again", append=True)).run
    with shop.catalog.load_table("marts.again").transaction() as change:
        change.set_properties(BatchStamp(before, 0, {}, 0).as_property())
    with pytest.raises(PlanError, match=rf"written by {before} \(backfill, planned\)"):
        shop.project.prepare(backfill(shop, into="marts.again"))


def test_a_sink_without_a_time_is_refused_if_it_has_any_row(shop):
    put(shop, "marts.again", 9 * HOUR)
    project = shop.project
    plan = backfill(shop, into="marts.again")
    timeless = shop.variant(("time: t, ", ""))
    with pytest.raises(PlanError, match=r"has rows already \(up to 1\)"):
        timeless.project.prepare(plan)
    assert project.prepare(backfill(shop)), "a shadow is a new table"


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.date32()])
def test_a_table_whose_time_is_none_has_no_rows_of_the_range(shop, kind):
    """The run itself then says that its output does not fit."""
    made = shop.catalog.create_table("logs.odd", pa.schema([("window_start", kind)]))
    made.append(pa.table({"window_start": pa.array([None], kind)}))
    assert count_rows(made, "window_start", (0, 1)) == 0


def test_history_over_times_that_the_table_has(shop):
    project = shop.project
    put(shop, "marts.sums", HOUR)
    with pytest.raises(PlanError, match=r"has rows with t in \[2026-01-01T00:00Z, the end\)"):
        project.prepare(project.plan_run("sums", FROM))
    project.prepare(project.plan_run("sums", TO))


@pytest.mark.parametrize("begin", ["latest", "earliest"])
def test_a_live_run_beside_older_rows(shop, begin):
    project = shop.project
    put(shop, "marts.sums", -HOUR)
    project.prepare(project.plan_run("sums", begin=begin))


def test_a_log_from_its_first_row_over_times_that_the_table_has(shop):
    project = shop.project
    put(shop, "marts.sums", HOUR)
    with pytest.raises(PlanError, match="has rows with t in"):
        project.prepare(project.plan_run("sums", begin="earliest"))
    assert project.prepare(project.plan_run("sums", begin="latest"))


@pytest.mark.parametrize("state", [RunState.PLANNED, RunState.STOPPED, RunState.FAILED])
def test_a_second_live_run_into_one_table(shop, state):
    project = shop.project
    first = project.prepare(project.plan_run("sums")).run
    project.registry.set_state(first, state)
    with pytest.raises(PlanError, match=f"the live run {first} of this pipeline") as raised:
        project.prepare(project.plan_run("sums"))
    assert f"tidemill resume {first}" in raised.value.fix
    assert f"tidemill cancel {first}" in raised.value.fix
    assert project.prepare(project.plan_run("sums", into="marts.other")), "another table"
    assert project.prepare(backfill(shop)), "a shadow"
    assert project.prepare(project.plan_run("sums", append=True))


@pytest.mark.parametrize("state", [RunState.CANCELLED, RunState.FINISHED])
def test_a_live_run_after_one_that_is_over(shop, state):
    project = shop.project
    first = project.prepare(project.plan_run("sums")).run
    project.registry.set_state(first, state)
    assert project.prepare(project.plan_run("sums"))


def test_state_beyond_whose_end_a_table_has_rows(shop):
    """The run went on after the export, or somebody began with the same file before."""
    project, runs = shop.project, []
    for _ in range(2):
        runs.append(project.prepare(project.plan_run("sums")))
        project.registry.set_state(runs[-1].run, RunState.CANCELLED)
    backfill = project.prepare(project.plan("sums", FROM, TO, into="marts.sums")).run
    table = ensure_table(shop.catalog, "marts.sums", OUT, None, "none")
    folder = RunFolder.of(project.loaded.home, runs[1].run).path
    run = SinkRun(project.loaded, shop.catalog, runs[1], folder)

    def stamped(writer, frontier):
        stamp = BatchStamp(writer, 9, {"plays": frontier}, 0)
        with shop.catalog.load_table("marts.sums").transaction() as change:
            change.set_properties(stamp.as_property())

    def ending(frontier):
        source = SourcePoint("plays", frontier, None, None, "event_ts", 0)
        return StatePoint(runs[0].run, "sums", 8, 0, {"plays": source})

    assert table is not None
    stamped(runs[0].run, 500)
    stamped(backfill, FOREVER_MICROS - 1)
    require_not_beyond(run, ending(500))
    with pytest.raises(PlanError, match=f"{runs[0].run} has written into marts.sums beyond") as no:
        require_not_beyond(run, ending(499))
    assert "--append writes beside them" in no.value.fix
    stamped("20260101_000000_aaaa", 501)  # of a run that was forgotten
    with pytest.raises(PlanError, match="20260101_000000_aaaa has written into"):
        require_not_beyond(run, ending(500))


def test_a_live_run_that_has_lost_its_folder_is_not_passed_over(shop):
    """What it had read after its last commit would be missing for ever."""
    project = shop.project
    first = project.prepare(project.plan_run("sums")).run
    project.registry.set_state(first, RunState.FAILED)
    shutil.rmtree(RunFolder.of(project.loaded.home, first).path)
    with pytest.raises(PlanError, match=f"{first} .* has lost its folder") as raised:
        project.prepare(project.plan_run("sums"))
    assert f"--recover-from-archive {first}" in raised.value.fix
    assert project.cancel(first).state is RunState.CANCELLED
    assert project.prepare(project.plan_run("sums"))


def test_the_run_that_is_recovered_is_no_second_one(shop):
    project = shop.project
    first = project.prepare(project.plan_run("sums"))
    project.registry.set_state(first.run, RunState.FAILED)
    other = change(first, run="other")
    with pytest.raises(PlanError, match=first.run):
        require_only_live_run(other, project.loaded.home)
    require_only_live_run(other, project.loaded.home, first.run)


def test_two_starts_at_once_see_each_other(shop):
    plans = [shop.project.plan_run("sums") for _ in range(4)]

    def start(plan: RunPlan) -> bool:
        try:
            shop.project.prepare(plan)
        except PlanError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(start, plans)) == 1
    assert len(shop.project.runs()) == 1


@pytest.mark.parametrize("name", ["logs.plays", "Logs.Plays", "logs.`plays`"])
def test_a_pipeline_that_writes_its_own_source(shop, name):
    looped = shop.variant(("table: marts.sums", f"table: '{name}'"))
    with pytest.raises(PlanError, match="from which its source 'plays' is read"):
        looped.project.plan("sums", FROM, TO)
    with pytest.raises(PlanError, match="from which its source 'plays' is read"):
        shop.project.plan("sums", FROM, TO, into=name)
    with pytest.raises(ConfigError, match="from which its source 'plays' is read"):
        _ = shop.variant(
            ("table: marts.sums", f"table: '{name}'"),
            ("entry: pipelines:sums", "entry: pipelines:sums\n    sources: {plays: {}}"),
        ).project


def test_a_pipeline_whose_late_rows_would_go_to_its_source(shop):
    looped = shop.variant(("table: logs.plays", "table: marts.sums__late"))
    with pytest.raises(PlanError, match=r"writes the table 'marts\.sums__late', from which its"):
        looped.project.plan("sums", FROM, TO)


def test_a_source_that_the_catalog_knows_by_another_name(shop):
    catalog = shop.catalog
    catalog.create_namespace_if_not_exists("other")
    catalog.register_table("other.name", catalog.load_table("logs.plays").metadata_location)
    with pytest.raises(PlanError, match="is the pipeline's own source"):
        shop.project.prepare(backfill(shop, into="other.name"))


def test_a_sink_in_the_archive_of_another_stream(shop):
    put(shop, "events.clicks", 5 * HOUR)
    reached = to_summary({0: ArchiveProgress(1, 1, None, "id", "clicks")})
    shop.catalog.load_table("events.clicks").append(
        pa.Table.from_pylist([], OUT), snapshot_properties=reached
    )
    with pytest.raises(PlanError, match="is the archive of the topic clicks"):
        shop.project.prepare(backfill(shop, into="events.clicks", append=True))


@pytest.mark.parametrize(
    ("warehouse", "refused"), [("lake/warehouse", True), ("lake", True), ("lake2", False)]
)
def test_a_sink_inside_of_a_folder_that_is_read(tmp_path, warehouse, refused):
    home = f"catalog: {{uri: 'sqlite:///c.db', warehouse: {warehouse}}}\n"
    archive = ("type: iceberg\n      table: logs.plays", "type: parquet\n      path: lake")
    shop = Shop.make(tmp_path, YAML.replace(*archive) + home)
    (tmp_path / "lake").mkdir()
    pq.write_table(table(events()), tmp_path / "lake" / "a.parquet")
    shop.know(columns=SCHEMA)
    plan = backfill(shop)
    if refused:
        with pytest.raises(PlanError, match="lie inside of the pipeline's own source, the folder"):
            shop.project.prepare(plan)
    else:
        assert shop.project.prepare(plan)


def test_a_sink_whose_table_lies_in_a_folder_that_is_read(tmp_path):
    archive = ("type: iceberg\n      table: logs.plays", "type: parquet\n      path: lake")
    shop = Shop.make(tmp_path, YAML.replace(*archive))
    (tmp_path / "lake").mkdir()
    pq.write_table(table(events()), tmp_path / "lake" / "a.parquet")
    shop.know(columns=SCHEMA)
    shop.catalog.create_namespace("marts")
    shop.catalog.create_table("marts.again", OUT, location=f"file://{tmp_path}/lake/again")
    with pytest.raises(PlanError, match=r"the table 'marts\.again' would lie inside"):
        shop.project.prepare(backfill(shop, into="marts.again"))
