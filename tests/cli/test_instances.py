"""``tidemill instances``: rows of a real table are added, listed, shown, withdrawn. No Spark."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.bad_input.terminal import Outcome, run_cli
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.errors import PlanError
from tidemill.iceberg.catalog import open_catalog
from tidemill.project import load

if TYPE_CHECKING:
    from pathlib import Path

    from tidemill.project import Project

YAML = """\
streams:
  trips: {event_time: at, archive: {type: iceberg, table: logs.trips, ingest_time: seen}}
pipelines:
  guarantee:
    entry: pipelines:guarantee
    instances: {table: ops.incentives, id: ref, from: since, to: until}
    sinks: {output: {table: marts.guarantee, time: t}}
  plain:
    entry: pipelines:plain
    sinks: {output: {table: marts.plain, time: t}}
"""
PERIOD = ("--from", "2026-08-21T00:00Z", "--to", "2026-08-27T00:00Z")
TIME = pa.timestamp("us", "UTC")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "tidemill.yaml").write_text(YAML)
    return load(tmp_path / "tidemill.yaml")


def cli(project: Project, *words: object) -> Outcome:
    return run_cli("instances", *words, cwd=project.loaded.base)


def add(project: Project, name: str, *sets: str) -> Outcome:
    given = [word for each in sets for word in ("--set", each)]
    return cli(project, "add", "guarantee", "--id", name, *PERIOD, *given)


def rows(project: Project) -> list[dict[str, object]]:
    found = open_catalog(project.loaded).load_table("ops.incentives").scan().to_arrow()
    return sorted(found.to_pylist(), key=lambda row: str(row["ref"]))


def test_the_first_instance_makes_the_table_and_the_next_ones_fit_it(project: Project) -> None:
    cli(project, "list", "guarantee").refuses(
        "pipeline guarantee (instances): the table 'ops.incentives' does not exist\n  fix: "
        "'tidemill instances add guarantee --id … --from … --to … --set NAME=VALUE' makes it with "
        "its first instance",
        1,
    )
    first = add(project, "sf", "city=SF", "least=4.5", "rides=20", "night=true")
    made, added = first.out.splitlines()
    assert made.startswith("made the table ops.incentives (ref ")
    assert "least double, rides int64, night bool)" in made
    assert added == "added sf to ops.incentives"
    second = add(project, "007", "city=12", "least=4")
    assert second.out.splitlines()[0] == "added 007 to ops.incentives", second
    assert "not given, so null: rides, night" in second.out
    start, end = datetime(2026, 8, 21, tzinfo=UTC), datetime(2026, 8, 27, tzinfo=UTC)
    assert rows(project) == [
        {"ref": "007", "since": start, "until": end, "city": "12", "least": 4.0, "rides": None,
         "night": None},
        {"ref": "sf", "since": start, "until": end, "city": "SF", "least": 4.5, "rides": 20,
         "night": True},
    ]  # fmt: skip


def test_what_does_not_fit_the_table_is_refused_and_nothing_is_added(project: Project) -> None:
    add(project, "sf", "city=SF", "rides=20")
    for given, words in {
        ("x", "citty=B"): "has no column 'citty'\n  fix: did you mean 'city'?",
        ("x", "rides=many"): "rides: 'many' is not an int",
        ("x", "ref=b"): "'ref' is no parameter",
        ("sf", "city=SF"): "the id 'sf' is in use, and an instance never changes",
    }.items():
        found = add(project, *given)
        assert words in found.err and found.code == 2, found
    empty = ("--from", "2026-08-21T00:00Z", "--to", "2026-08-21T00:00Z")
    assert "the range is empty" in cli(project, "add", "guarantee", "--id", "x", *empty).err
    assert "the pipeline 'plain' has no instances" in cli(project, "list", "plain").err
    assert "there is no pipeline 'guarante'" in cli(project, "list", "guarante").err
    assert len(rows(project)) == 1


def test_a_list_tells_states_and_broken_rows_and_json_has_the_contract(project: Project) -> None:
    add(project, "sf", "city=SF")
    add(project, "ny", "city=NY")
    table = open_catalog(project.loaded).load_table("ops.incentives")
    moment = datetime(2026, 8, 21, tzinfo=UTC)
    broken = {"ref": "bad", "since": moment, "until": moment, "city": "B"}
    table.append(pa.Table.from_pylist([broken], table.schema().as_arrow()))
    told = json.loads(cli(project, "list", "guarantee", "--json").out)
    assert told[0] == {
        "id": "ny", "state": "waiting", "from": "2026-08-21T00:00Z", "to": "2026-08-27T00:00Z",
        "watermark": None, "rows": None, "created": None, "percent": None, "eta": None,
    }  # fmt: skip
    assert [each["id"] for each in told] == ["ny", "sf"]
    shown = cli(project, "list", "guarantee").out
    assert shown.splitlines()[2].split() == ["sf", "waiting", "2026-08-21T00:00Z",
                                            "2026-08-27T00:00Z"]  # fmt: skip
    assert "no instance bad: since 2026-08-21T00:00:00Z is not before until" in shown
    assert "the row of 'bad' is no instance" in cli(project, "show", "bad").err
    assert "did you mean 'sf'?" in cli(project, "show", "sff").err
    one = json.loads(cli(project, "show", "sf", "--json").out)
    assert one["params"] == {"city": "SF"}
    assert "city       SF" in cli(project, "show", "sf", "--pipeline", "guarantee").out


def test_an_instance_is_withdrawn_only_if_somebody_says_yes(project: Project) -> None:
    add(project, "sf", "city=SF")
    asked = cli(project, "withdraw", "sf")
    assert "there is no terminal to ask on: give --yes" in asked.err and asked.code == 2
    assert project.registry.withdrawn("guarantee") == {}
    assert cli(project, "withdraw", "sf", "--yes").out.startswith("sf  withdrawn\n")
    at = project.registry.withdrawn("guarantee")
    assert list(at) == ["sf"]
    cli(project, "withdraw", "sf", "--yes")
    assert project.registry.withdrawn("guarantee") == at, "twice is as once"
    assert json.loads(cli(project, "list", "guarantee", "--json").out)[0]["state"] == "withdrawn"
    assert "does not exist" not in cli(project, "withdraw", "nobody", "--yes").err


def test_of_many_who_add_one_id_at_once_exactly_one_does(project: Project) -> None:
    add(project, "first", "city=SF")
    desk = project.instances("guarantee")
    start, end = datetime(2026, 8, 21, tzinfo=UTC), datetime(2026, 8, 27, tzinfo=UTC)

    def try_it(number: int) -> bool:
        try:
            desk.add("same", start, end, {"city": str(number)})
        except PlanError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(try_it, range(4)))
    assert sum(done) == 1
    assert [row["ref"] for row in rows(project)] == ["first", "same"]


def test_columns_of_other_types_take_values_that_fit_them(project: Project) -> None:
    schema = pa.schema(
        [("ref", pa.int64()), ("since", pa.timestamp("us")), ("until", pa.date32()),
         ("price", pa.decimal128(6, 2)), ("day", pa.date32()), ("tags", pa.list_(pa.string()))]
    )  # fmt: skip
    ensure_table(open_catalog(project.loaded), "ops.incentives", schema, None, "none")
    assert add(project, "7", "price=3.5", "day=2026-08-22").code == 0
    assert "ref: 'x' is not an int" in add(project, "x").err
    assert "tags is a" in add(project, "8", "tags=a").err
    assert "price: 3.555 is not a decimal128(6, 2)" in add(project, "8", "price=3.555").err
    (found,) = json.loads(cli(project, "list", "guarantee", "--json").out)
    assert (found["id"], found["from"], found["to"]) == (
        7,
        "2026-08-21T00:00Z",
        "2026-08-27T00:00Z",
    )
