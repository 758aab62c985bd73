"""Missing data in real tables: what metadata tells of the archive, of production and of runs."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from tests.bad_input.shop import FROM, T0, TIME, TO, Shop, events, expected, table
from tidemill.connectors.sinks.iceberg.filled import spans_with_files
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.errors import PlanError
from tidemill.jsonvalue import dump_json
from tidemill.planning.gaps import Reason, Unit
from tidemill.planning.manifest import Manifest, Outputs
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.registry import BatchRecord, RunState
from tidemill.testing import assert_same_rows
from tidemill.types import BEGINNING, FOREVER_MICROS, to_micros

HOUR = timedelta(hours=1)
NO, NOT = Reason.NO_OUTPUT, Reason.NOT_COVERED
SUMS = pa.schema([("t", TIME), ("key", pa.int64()), ("n", pa.int64()), ("s", pa.int64())])


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop.make(tmp_path / "shop")
    made.fill("logs.plays", table(events()), files=8)
    hourly = ("key: [key, t]}", "key: [key, t], partition_by: hour}")
    return made.variant(hourly).know()


def write(shop: Shop, *hours: int, name: str = "marts.sums") -> None:
    """Production has the rows of these hours, a file for each."""
    made = ensure_table(shop.catalog, name, SUMS, "t", "hour")
    for hour in hours:
        rows = [row for row in expected() if T0 + hour * HOUR <= row["t"] < T0 + (hour + 1) * HOUR]
        made.append(pa.Table.from_pylist(rows, schema=SUMS))


def finished(shop: Shop, start: timedelta, end: timedelta, **options: object) -> str:
    """A backfill that the registry says is finished."""
    plan = shop.project.plan("sums", T0 + start, T0 + end, **options)
    run = shop.project.prepare(plan).run
    shop.project.registry.set_state(run, RunState.FINISHED)
    return run


def live(shop: Shop, start: timedelta, reached: timedelta, state: RunState) -> str:
    """A live run of history whose batches have gone so far."""
    run = finished(shop, timedelta(), HOUR)
    folder, frontier = RunFolder.of(shop.project.loaded.home, run), to_micros(T0 + reached)
    made = folder.read_manifest()
    sinks = {name: replace(pin, place="marts.sums") for name, pin in made.outputs.sinks.items()}
    made = replace(
        made,
        times=replace(made.times, output=(to_micros(T0 + start), FOREVER_MICROS), ends=False),
        outputs=replace(made.outputs, sinks=sinks),
    )
    (folder.path / "manifest.json").write_text(dump_json(made), "utf-8")
    shop.project.registry.record_batch(run, BatchRecord(0, frontier, 0, 1, 0, 0, 1, 0, 0.1))
    shop.project.registry.set_state(run, state)
    return run


def gaps(shop: Shop, start: object = T0, end: object = T0 + 2 * HOUR) -> list[tuple]:
    """The gaps in hours from the beginning, with their reasons."""
    report = shop.project.gaps("sums", start, end)
    zero = to_micros(T0)
    return [
        ((gap.start - zero) / 3.6e9, (gap.end - zero) / 3.6e9, gap.reasons)
        for gap in report.outputs[0].stretches
    ]


def test_everything_is_missing_before_the_first_run(shop: Shop):
    assert gaps(shop) == [(0, 2, (NO, NOT))]


def test_rows_that_no_run_has_given_are_told_apart_from_missing_ones(shop: Shop):
    write(shop, 0)
    assert gaps(shop) == [(0, 1, (NOT,)), (1, 2, (NO, NOT))]


def test_only_hours_with_input_can_be_gaps(shop: Shop):
    assert gaps(shop, T0 - 24 * HOUR, T0 + 24 * HOUR) == [(0, 2, (NO, NOT))]


def test_a_backfill_into_production_covers_its_range(shop: Shop):
    write(shop, 0)
    finished(shop, timedelta(), 1.5 * HOUR, into="marts.sums", append=True)
    assert gaps(shop) == [(1, 1.5, (NO,)), (1.5, 2, (NO, NOT))]


def test_a_backfill_of_a_part_of_the_rows_covers_nothing(shop: Shop):
    where = ["country = 'DE'"]
    finished(shop, timedelta(), 2 * HOUR, into="marts.sums", append=True, where=where)
    assert gaps(shop) == [(0, 2, (NO, NOT))]


def test_a_backfill_covers_when_it_is_published_and_not_when_it_is_reverted(shop: Shop):
    write(shop, 0)
    run = finished(shop, HOUR, 2 * HOUR)
    write(shop, 1, name=f"marts.sums__{run}")
    assert gaps(shop) == [(0, 1, (NOT,)), (1, 2, (NO, NOT))]
    shop.project.review.publish(run)
    assert gaps(shop) == [(0, 1, (NOT,))]
    shop.project.review.revert(run)
    assert gaps(shop) == [(0, 1, (NOT,)), (1, 2, (NO, NOT))]


def test_a_live_run_covers_what_it_has_read_wholly(shop: Shop):
    """Its last batch was at 01:50: windows of 10 minutes and lateness hold 20 minutes back."""
    write(shop, 0, 1)
    live(shop, HOUR / 2, 110 / 60 * HOUR, RunState.CANCELLED)
    assert gaps(shop) == [(0, 0.5, (NOT,)), (1.5, 2, (NOT,))]


def test_a_live_run_of_a_log_alone_lacks_what_its_first_rows_need_of_before(shop: Shop):
    """Rows may come up to 15 minutes before their time: those of the first ones came before it."""
    shop = shop.variant(("lateness: 10 min", "lateness: 10 min\n    skew: 15 min")).know()
    write(shop, 0, 1)
    run = live(shop, HOUR / 2, 2 * HOUR, RunState.CANCELLED)
    folder = RunFolder.of(shop.project.loaded.home, run)
    made = folder.read_manifest()
    times = replace(
        made.times,
        output=(to_micros(BEGINNING), FOREVER_MICROS),
        boundaries=(to_micros(T0 + HOUR / 2),),
    )
    (folder.path / "manifest.json").write_text(dump_json(replace(made, times=times)), "utf-8")
    found = gaps(shop)
    assert found[0][:2] == (0, 0.75), "not the half hour alone"


def test_what_a_live_run_has_still_to_write_is_no_gap(shop: Shop):
    run = live(shop, HOUR / 2, 110 / 60 * HOUR, RunState.STOPPED)
    report = shop.project.gaps("sums", T0, T0 + 2 * HOUR)
    assert report.judged[1] == to_micros(T0 + 1.5 * HOUR)
    assert f"the live run {run} (stopped) has still to write" in report.notes[0]
    assert gaps(shop) == [(0, 0.5, (NO, NOT)), (0.5, 1.5, (NO,))]


def test_a_live_run_into_another_table_has_nothing_to_write_here(shop: Shop):
    write(shop, 0, 1)
    run = live(shop, HOUR / 2, 110 / 60 * HOUR, RunState.RUNNING)
    change_manifest(shop, run, lambda made: replace(made, outputs=into(made, "marts.other")))
    report = shop.project.gaps("sums", T0, T0 + 2 * HOUR)
    assert report.notes == () and report.judged[1] == to_micros(T0 + 2 * HOUR)
    assert gaps(shop) == [(0, 2, (NOT,))]


def test_a_backfill_covers_only_what_it_had_all_input_of(shop: Shop):
    """It was planned at 01:30: windows of 10 minutes and lateness hold 20 minutes back."""
    write(shop, 0, 1)
    run = finished(shop, timedelta(), 2 * HOUR, into="marts.sums", append=True)
    early = to_micros(T0 + 1.5 * HOUR)
    change_manifest(
        shop, run, lambda made: replace(made, identity=replace(made.identity, created=early))
    )
    assert gaps(shop) == [(pytest.approx(7 / 6), 2, (NOT,))]
    into_shadow = finished(shop, timedelta(), 2 * HOUR)
    write(shop, 0, 1, name=f"marts.sums__{into_shadow}")
    change_manifest(
        shop,
        into_shadow,
        lambda made: replace(made, identity=replace(made.identity, created=early)),
    )
    shop.project.registry.set_state(run, RunState.CANCELLED)
    shop.project.review.publish(into_shadow, unfinished=True)
    assert gaps(shop) == [(pytest.approx(7 / 6), 2, (NOT,))]


def change_manifest(shop: Shop, run: str, change: Callable[[Manifest], Manifest]) -> None:
    folder = RunFolder.of(shop.project.loaded.home, run)
    made = change(folder.read_manifest())
    (folder.path / "manifest.json").write_text(dump_json(made), "utf-8")


def into(made: Manifest, place: str) -> Outputs:
    sinks = {name: replace(pin, place=place) for name, pin in made.outputs.sinks.items()}
    return replace(made.outputs, sinks=sinks)


def test_data_files_are_not_read(shop: Shop):
    write(shop, 0, 1)
    for name in ("logs.plays", "marts.sums"):
        for task in shop.catalog.load_table(name).scan().plan_files():
            Path(task.file.file_path.removeprefix("file://")).unlink()
    assert gaps(shop) == [(0, 2, (NOT,))]


def test_a_day_without_partitions_is_looked_at_by_the_hour(shop: Shop):
    found = shop.project.gaps("sums", T0, T0 + 2 * HOUR).outputs[0]
    assert found.unit is Unit.HOUR, "the table is not there, and will have hours"
    ensure_table(shop.catalog, "marts.sums", SUMS, "t", "day")
    assert shop.project.gaps("sums", T0, T0 + 2 * HOUR).outputs[0].unit is Unit.DAY


def test_a_file_over_several_hours_is_asked_for_its_rows(shop: Shop):
    made = ensure_table(shop.catalog, "marts.one", SUMS, "t", "none")
    rows = [{"t": T0 + minutes * HOUR / 60, "key": 1, "n": 1, "s": 1} for minutes in (30, 150)]
    made.append(pa.Table.from_pylist(rows, schema=SUMS))
    spans = [(to_micros(T0 + at * HOUR), to_micros(T0 + (at + 1) * HOUR)) for at in range(-1, 4)]
    known = spans_with_files(shop.catalog.load_table("marts.one"), "t", spans)
    assert known == [False, None, None, None, False]
    one = shop.variant(("marts.sums", "marts.one")).know()
    assert gaps(one) == [(0, 1, (NOT,)), (1, 2, (NO, NOT))]


def test_the_command_shows_gaps_and_how_to_fill_them(shop: Shop):
    write(shop, 0)
    found = shop.cli("gaps", "sums", "--from", FROM, "--to", TO)
    assert found.code == 0, found.err
    assert "output  marts.sums  by the hour" in found.out
    lines = [line.split() for line in found.out.splitlines()]
    assert ["2026-01-01T00:00Z", "2026-01-01T01:00Z", "1h", "not", "covered"] in lines
    assert [FROM[:-6] + "01:00Z", TO, "1h", "no", "output,", "not", "covered"] in lines
    assert f"tidemill backfill sums --gaps --from {FROM} --to {TO}" in found.out
    told = json.loads(shop.cli("gaps", "sums", "--from", FROM, "--to", TO, "--json").out)
    assert told["outputs"]["output"]["gaps"][1] == {
        "from": "2026-01-01T01:00Z",
        "to": "2026-01-01T02:00Z",
        "reasons": ["no output", "not covered"],
    }
    assert told["fill"] == [{"from": FROM, "to": TO}]


def test_gaps_need_a_time(shop: Shop):
    timeless = shop.variant(("time: t, key: [key, t]", "key: [key, t]")).know()
    with pytest.raises(PlanError, match=r"has no time"):
        timeless.project.gaps("sums", T0, T0 + HOUR)


def test_the_dry_run_plans_a_backfill_for_each_gap_and_starts_none(shop: Shop):
    write(shop, 0, 1)
    finished(shop, HOUR / 2, 1.5 * HOUR, into="marts.sums", append=True)
    found = shop.cli(
        "backfill", "sums", "--gaps", "--dry-run", "--from", FROM, "--to", TO, "--json"
    )
    assert found.code == 0, found.err
    fillings = json.loads(found.out)["fillings"]
    assert [(each["from"], each["to"]) for each in fillings] == [
        (FROM, "2026-01-01T00:30Z"),
        ("2026-01-01T01:30Z", TO),
    ]
    assert [each["run"] for each in fillings] == [None, None]
    assert fillings[0]["name"].startswith("gap-sums-20260101T000000-20260101T003000-")
    assert len(shop.project.runs()) == 1


@pytest.mark.parametrize("option", ["--dry-run", "--yes"])
def test_publishing_into_a_table_that_is_not_there_is_refused_before_anything_runs(
    shop: Shop, option: str
):
    asked = ("backfill", "sums", "--gaps", "--publish", option, "--from", FROM, "--to", TO)
    told = shop.cli(*asked)
    assert told.code == 1 and "the table 'marts.sums' is not there" in told.err
    assert "with --into marts.sums" in told.err and not shop.project.runs()
    write(shop, 0)
    if option == "--dry-run":
        assert shop.cli(*asked).code == 0


def test_a_run_of_an_earlier_call_keeps_its_range(shop: Shop):
    one = shop.project.review.fillings("sums", T0, T0 + HOUR)[0]
    run = shop.project.prepare(one.plan, one.name).run
    found = shop.project.review.fillings("sums", T0, T0 + 2 * HOUR)
    assert [(each.range.start, each.run and each.run.run) for each in found] == [
        (T0, run),
        (T0 + HOUR, None),
    ]
    shop.project.cancel(run)
    assert len(shop.project.review.fillings("sums", T0, T0 + 2 * HOUR)) == 1


def test_a_run_of_older_code_is_not_taken(shop: Shop):
    (one,) = shop.project.review.fillings("sums", T0, T0 + HOUR)
    assert one.plan is not None
    shop.project.prepare(one.plan, f"{one.name[:-6]}aaaaaa")
    assert [each.run for each in shop.project.review.fillings("sums", T0, T0 + HOUR)] == [None]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--gaps", "--into", "marts.other"), "--into and --gaps exclude each other"),
        (("--gaps", "--region", "DE"), "--region and --gaps exclude each other"),
        (("--gaps", "--where", "key = 1"), "--where and --gaps exclude each other"),
        (("--gaps", "--name", "mine"), "--name and --gaps exclude each other"),
        (("--dry-run",), "--dry-run belongs to --gaps"),
        (("--publish",), "--publish belongs to --gaps"),
        (("--gaps", "--publish"), "there is no terminal to ask on: give --yes"),
    ],
)
def test_what_does_not_go_with_gaps(shop: Shop, arguments: tuple[str, ...], text: str):
    found = shop.backfill(*arguments)
    assert found.code != 0
    assert text in found.err
    assert not shop.project.runs()


def test_gaps_are_filled_and_published(tmp_path: Path, spark):
    """Two gaps around an hour that a run has given; then nothing is missing any more."""
    shop = Shop.make(tmp_path / "shop")
    shop.fill("logs.plays", table(events()), files=8)
    shop.project.plan("sums", T0, T0 + HOUR, spark=spark)  # its code is known from here on
    write(shop, 0, 1)
    finished(shop, HOUR / 2, 1.5 * HOUR, into="marts.sums", append=True)
    project = shop.project
    for each in project.review.fillings("sums", T0, T0 + 2 * HOUR, spark=spark):
        span = each.range
        result = project.backfill("sums", span.start, span.end, name=each.name, spark=spark)
        project.review.publish(result.run)
    assert gaps(shop) == []
    assert project.review.fillings("sums", T0, T0 + 2 * HOUR) == []
    assert_same_rows(
        shop.catalog.load_table("marts.sums").scan().to_arrow().to_pylist(), expected()
    )
