"""The PostgreSQL sink on a real server: exactly once, what fits, what is refused."""

import itertools
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from tests.connectors.sinks.postgres.stage import SCHEMA, Stage, stamp, table, write
from tests.postgres import postgres
from tidemill.config.sink import SINKS
from tidemill.connectors.sinks.postgres import table as module
from tidemill.connectors.sinks.postgres.columns import fits
from tidemill.errors import PlanError, SinkError

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server() -> dict[str, Any]:
    return postgres()


@pytest.fixture
def stage(server: dict[str, Any]) -> Stage:
    return Stage(server, f"marts{next(_NUMBERS)}")


A, B, C = (1, 10, "a"), (2, 20, "b"), (3, 30, "c")


def test_rows_are_seen_when_the_batch_is_committed(stage):
    sink = stage.ready(time="at")
    written = write(sink, table(A, B), table(C), table())
    assert len(written) == stage.staged() == 2
    assert stage.rows() == []
    assert sink.commit(stamp(0), written)
    assert stage.rows() == [(1, "a"), (2, "b"), (3, "c")]
    assert stage.staged() == 0
    assert {run: last.stamp for run, last in sink.stamps().items()} == {"r1": stamp(0)}
    assert sink.stamps()["r1"].at > 10**12


def test_a_batch_without_rows_commits_nothing(stage):
    sink = stage.ready()
    assert not sink.commit(stamp(0), [])
    assert sink.stamps() == {}


def test_a_table_is_dropped_with_its_stamps_and_stages(stage):
    """Twice is as good as once; the stamps of other tables in the schema stay."""
    other = stage.ready(table=f"{stage.schema}.others")
    other.commit(stamp(0), write(other, table(A)))
    sink = stage.ready()
    assert sink.is_there()
    sink.commit(stamp(0), write(sink, table(A)))
    write(sink, table(B))
    for _ in range(2):
        sink.drop()
        assert (sink.is_there(), sink.stamps(), stage.staged()) == (False, {}, 0)
    assert list(other.stamps()) == ["r1"]
    assert stage.query("SELECT count(*) FROM $S.others") == [(1,)]


def test_a_repeat_is_thrown_away(stage):
    sink = stage.ready()
    sink.commit(stamp(0), write(sink, table(A)))
    again = stage.ready()
    assert not again.commit(stamp(0), write(again, table(A)))
    assert stage.rows() == [(1, "a")]
    assert stage.staged() == 0


def test_a_driver_whose_successor_has_committed_stops(stage):
    old, new = stage.ready(), stage.ready()
    for batch in (0, 1):
        new.commit(stamp(batch), write(new, table(A)))
    with pytest.raises(SinkError, match="another driver of the run r1 has committed batch 1"):
        old.commit(stamp(0), write(old, table(A)))
    assert len(stage.rows()) == 2


def test_a_rewound_run_repeats_what_the_table_had_when_it_started(stage):
    sink = stage.ready()
    for batch in (0, 1):
        sink.commit(stamp(batch), write(sink, table(A)))
    again = stage.ready()
    assert not again.commit(stamp(0), write(again, table(A)))
    assert not again.commit(stamp(1), write(again, table(A)))
    assert again.commit(stamp(2), write(again, table(B)))
    assert len(stage.rows()) == 3


def test_another_batch_of_the_same_number_is_refused(stage):
    sink = stage.ready()
    sink.commit(stamp(0), write(sink, table(A)))
    with pytest.raises(SinkError, match="another batch 0 of the run r1: its frontiers of a"):
        sink.commit(stamp(0, frontiers={"a": 7}), write(sink, table(A)))


def test_only_what_reported_tasks_have_staged_is_merged(stage):
    """A second attempt of a task, and a task of a driver that was killed, staged in vain."""
    sink = stage.ready()
    write(sink, table(B))
    written = write(sink, table(A))
    write(sink, table(C))
    sink.commit(stamp(0), written)
    assert stage.rows() == [(1, "a")]
    assert stage.staged() == 0


def test_a_start_drops_what_its_own_dead_attempts_left_and_nothing_else(stage):
    mine, other = stage.ready(), stage.ready(run="r2")
    write(mine, table(A))
    written = write(other, table(B))
    stage.ready()
    assert stage.staged() == 1
    assert other.commit(stamp(0, "r2"), written)
    assert mine.stamps().keys() == {"r2"}


def test_an_attempt_that_dies_leaves_nothing(stage):
    sink = stage.ready()
    opened = sink.destination().open("output")
    list(opened.take(table(A)))
    assert stage.staged() == 0
    opened._connection.close()
    assert stage.staged() == 0


def test_rows_are_read_back_by_their_time(stage):
    shape = {
        "id": "long",
        "at": "timestamp",
        "price": "decimal(9,2)",
        "tags": {"type": "array", "elementType": "string", "containsNull": True},
    }
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("at", pa.timestamp("us", "UTC")),
            ("price", pa.decimal128(9, 2)),
            ("tags", pa.list_(pa.string())),
        ]
    )
    rows = [(n, n * 10, Decimal(n) / 4, ["a", None]) for n in range(5)]
    assert stage.sink(shape=shape, time="at").view() is None
    sink = stage.ready(shape=shape, time="at")
    sink.commit(stamp(0), write(sink, table(*rows, schema=schema)))
    view = sink.view()
    assert view.columns.names == schema.names and view.columns.field("tags").type == pa.string()
    assert sum(len(batch) for batch in view.scan(["id"], (10, 30))) == 2
    assert (view.state, set(view.stamps)) == (None, {"r1"})
    found = [
        row for batch in sink.scan(["id", "price", "tags"], (10, 30)) for row in batch.to_pylist()
    ]
    assert sorted(found, key=lambda row: row["id"]) == [
        {"id": 1, "price": Decimal("0.25"), "tags": '["a", null]'},
        {"id": 2, "price": Decimal("0.50"), "tags": '["a", null]'},
    ]
    assert list(sink.scan(["id"], (100, 200))) == []
    everything = stage.ready(shape=shape)
    assert sum(len(batch) for batch in everything.scan(["at"], (0, 1))) == 5


def test_discarded_rows_are_gone(stage):
    sink = stage.ready()
    sink.discard(write(sink, table(A)))
    assert (stage.rows(), stage.staged()) == ([], 0)


def test_staged_rows_that_a_crash_of_the_server_took_stop_the_run(stage):
    sink = stage.ready()
    written = write(sink, table(A, B))
    ((name,),) = stage.query(
        "SELECT tablename FROM pg_tables WHERE schemaname = '$S' AND tablename LIKE '%stage%'"
    )
    stage.query(f"TRUNCATE $S.{name}")  # as recovery does with tables outside of the log
    with pytest.raises(SinkError, match="a task wrote 2 rows, 0 of them are left"):
        sink.commit(stamp(0), written)
    assert (stage.rows(), sink.stamps()) == ([], {})


@pytest.mark.parametrize("landed", [True, False], ids=["landed", "lost"])
def test_a_commit_whose_result_is_not_known_is_looked_up(stage, monkeypatch, landed):
    sink, real, tries = stage.ready(), module.connect, []

    def breaking(**client):
        connection = real(**client)
        tries.append(connection)
        if len(tries) == 1:
            if landed:
                end = connection.transaction

                def transaction():
                    made = end()
                    leave = made.__exit__

                    class Answered:
                        def __enter__(self):
                            return made.__enter__()

                        def __exit__(self, *error):
                            leave(*error)
                            raise psycopg.OperationalError("the answer was lost")

                    return Answered()

                monkeypatch.setattr(connection, "transaction", transaction)
            else:
                connection.close()
        return connection

    written = write(sink, table(A))
    monkeypatch.setattr(module, "connect", breaking)
    assert sink.commit(stamp(0), written), "these very rows are in the table"
    assert len(tries) == 2
    assert stage.rows() == [(1, "a")]


def test_two_drivers_commit_a_batch_once(stage):
    from concurrent.futures import ThreadPoolExecutor

    sinks = [stage.ready() for _ in range(2)]
    written = [write(sink, table(A)) for sink in sinks]

    def commit(n: int) -> bool | str:
        try:
            return sinks[n].commit(stamp(0), written[n])
        except SinkError as error:  # the other one has cleared away what was staged
            return error.message

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(commit, range(2))).count(True) == 1
    assert stage.rows() == [(1, "a")]


def test_upsert_keeps_the_latest_row_of_a_key_however_rows_are_cut(stage):
    rows = [(1, 10, "a"), (1, 30, "b"), (2, 5, "x"), (1, 20, "c"), (2, 6, "y")]
    for cuts in ([5], [1, 1, 1, 1, 1], [2, 3], [3, 2]):
        stage.query("DROP SCHEMA IF EXISTS $S CASCADE")
        sink = stage.ready(mode="upsert", key=["id"], time="at")
        at = 0
        for batch, size in enumerate(cuts):
            sink.commit(stamp(batch), write(sink, *(table(row) for row in rows[at : at + size])))
            at += size
        assert stage.rows() == [(1, "b"), (2, "y")], cuts


@pytest.mark.parametrize(
    ("more", "is_told"),
    [
        ({}, False),
        ({"key": "id"}, False),
        ({"mode": "upsert", "key": "id", "time": "at"}, False),
        ({"mode": "upsert", "key": "id"}, True),
    ],
)
def test_upsert_without_a_time_is_a_risk(stage, more, is_told):
    risks = list(stage.section(**more).risks("plays"))
    assert len(risks) == is_told
    assert all("the sink 'plays'" in risk and "name its time" in risk for risk in risks)


def test_an_empty_table_is_read_with_its_columns(stage):
    found = stage.ready().read()
    assert (len(found), found.schema) == (0, SCHEMA)


def test_upsert_without_a_time_replaces_rows(stage):
    sink = stage.ready(mode="upsert", key=["id"])
    sink.commit(stamp(0), write(sink, table(A, B)))
    sink.commit(stamp(1), write(sink, table((1, 5, "new"))))
    assert stage.rows() == [(1, "new"), (2, "b")]


def test_upsert_of_keys_alone(stage):
    shape = {"id": "long"}
    sink = stage.ready(mode="upsert", key="id", shape=shape)
    one = pa.table({"id": [1]})
    for batch in (0, 1):
        assert sink.commit(stamp(batch), write(sink, one))
    assert stage.rows("id") == [(1,)]


@pytest.mark.parametrize(
    ("time", "rows", "message"),
    [
        (None, [A, (1, 11, "z")], "2 rows of the batch have id=1"),
        ("at", [A, (1, 10, "z")], "2 rows of the batch have id=1, at=1970-01-01 00:00:00.00001"),
        ("at", [A, (None, 10, "z")], "the key 'id' is null in 1 rows"),
    ],
)
def test_keys_that_do_not_tell_rows_apart(stage, time, rows, message):
    sink = stage.ready(mode="upsert", key=["id"], time=time)
    with pytest.raises(SinkError) as raised:
        sink.commit(stamp(0), write(sink, *(table(row) for row in rows)))
    assert raised.value.message.startswith(message)
    assert raised.value.fix
    assert (stage.rows(), sink.stamps()) == ([], {})


NESTED = {
    "type": "struct",
    "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}],
}
LISTS = {"type": "array", "elementType": "string", "containsNull": True}
MAPS = {"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True}


def test_every_type_comes_back_as_it_was(stage):
    shape: dict[str, Any] = {
        "b": "boolean", "i1": "byte", "i2": "short", "i4": "integer", "i8": "long", "f4": "float",
        "f8": "double", "n": "decimal(20,4)", "s": "string", "raw": "binary", "d": "date",
        "t": "timestamp", "l": "timestamp_ntz", "o": NESTED, "a": LISTS, "m": MAPS,
        'odd "name"': "string",
    }  # fmt: skip
    sink = stage.ready(shape=shape)
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    text = "q\"uo,te'\n\\.\n\\N\ttab é"
    row = {
        "b": True, "i1": -128, "i2": 5, "i4": -7, "i8": 2**62, "f4": 0.5, "f8": 0.1,
        "n": Decimal("-1234567890.1234"), "s": text, "raw": b"\x00\xff", "d": date(1, 1, 1),
        "t": moment, "l": moment.replace(tzinfo=None), "o": {"x": 1}, "a": ["a", None],
        "m": [("k", 1.5)], 'odd "name"': "",
    }  # fmt: skip
    odd = dict.fromkeys(row) | {"f4": math.inf, "f8": math.nan}
    from tidemill.connectors.sinks.contract import arrow_schema

    rows = pa.Table.from_pylist([row, odd], schema=arrow_schema(sink.pin))
    sink.commit(stamp(0), write(sink, rows))
    first, second = stage.query("SELECT * FROM $S.plays ORDER BY b")
    assert dict(zip(shape, first, strict=True)) == row | {"m": {"k": 1.5}}
    assert second[5] == math.inf
    assert math.isnan(second[6])
    assert {value for n, value in enumerate(second) if n not in (5, 6)} == {None}
    kinds = "SELECT data_type FROM information_schema.columns WHERE table_schema = '$S'"
    kinds += " AND table_name = 'plays' ORDER BY ordinal_position"
    assert [kind for (kind,) in stage.query(kinds)][-4:-1] == ["jsonb"] * 3
    again = sink.read().sort_by("b")
    told = {"o": '{"x": 1}', "a": '["a", null]', "m": '{"k": 1.5}'}
    assert again.slice(0, 1).to_pylist() == [row | told]
    assert again.column("f8")[1].as_py() != again.column("f8")[1].as_py()
    assert {field.name: field.type for field in again.schema if field.name not in told} == {
        field.name: field.type for field in rows.schema if field.name not in told
    }


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("id bigint, at timestamptz", "the table has no column 'name'"),
        (
            "id integer, at timestamptz, name text",
            "'id' of the output is bigint, that of the table",
        ),
        ("id bigint, at timestamp, name text", "'at' of the output is timestamp with time zone"),
        (
            "id bigint, at timestamptz, name text, must int NOT NULL",
            "'must' of the table must have",
        ),
    ],
)
def test_a_table_that_does_not_fit(stage, ddl, message):
    stage.query(f"CREATE SCHEMA $S; CREATE TABLE $S.plays ({ddl})")
    with pytest.raises(SinkError, match=message) as raised:
        stage.ready()
    assert raised.value.where == f"postgres:{stage.schema}.plays"


def test_a_table_with_wider_and_other_columns_is_taken(stage):
    stage.query(
        "CREATE SCHEMA $S; CREATE TABLE $S.plays (more serial, name varchar(3), "
        "at timestamptz NOT NULL, id numeric, note text)"
    )
    sink = stage.ready()
    sink.commit(stamp(0), write(sink, table(A)))
    assert stage.rows("more, id, note") == [(1, 1, None)]
    with pytest.raises(SinkError, match="value too long for type character varying"):
        sink.commit(stamp(1), write(sink, table((2, 3, "long"))))
    with pytest.raises(SinkError, match=r"\(column at\): null value"):
        sink.commit(stamp(1), write(sink, table((2, None, "x"))))
    assert len(stage.rows()) == 1


def test_a_key_that_is_not_unique_in_the_table(stage):
    stage.query("CREATE SCHEMA $S; CREATE TABLE $S.plays (id int8, at timestamptz, name text)")
    with pytest.raises(SinkError, match=r"the key \(id\) is not unique") as raised:
        stage.ready(mode="upsert", key="id")
    stage.query(raised.value.fix.partition(";")[0])
    assert stage.ready(mode="upsert", key="id")


@pytest.mark.parametrize(
    ("a", "b", "is_fit"),
    [
        ("numeric(10,2)", "numeric(12,4)", True),
        ("numeric(10,2)", "numeric(10,4)", False),
        ("numeric(10,2)", "numeric(20,1)", False),
        ("numeric(10,2)", "numeric", True),
        ("numeric(10,2)", "double precision", False),
        ("bigint", "integer", False),
        ("text", "character varying(9)", True),
    ],
)
def test_what_fits(a, b, is_fit):
    assert fits(a, b) is is_fit


def test_text_that_postgresql_cannot_hold(stage):
    sink = stage.ready()
    with pytest.raises(SinkError, match="PostgreSQL cannot take the rows") as raised:
        write(sink, table((1, 1, "nul \x00")))
    assert "cast or filter" in raised.value.fix
    assert stage.staged() == 0


def test_a_wrong_password_is_neither_let_in_nor_shown(stage, server):
    sink = stage.sink(user="nobody-here", password="pssst-secret")
    for ask in (sink.check, sink.stamps, lambda: sink.prepare(None)):
        with pytest.raises(SinkError) as raised:
            ask()
        assert raised.value.message.startswith("PostgreSQL cannot be reached")
        assert "user and password" in raised.value.fix
        assert "pssst" not in raised.value.text()
    assert "pssst" not in repr(stage.section(password="pssst-secret"))
    assert "pssst" not in repr(stage.ready(password="pssst-secret").destination())
    assert "pssst" not in repr(stage.sink(password="pssst-secret").pin)


def test_a_server_that_is_not_there(stage):
    with pytest.raises(SinkError, match="PostgreSQL cannot be reached"):
        stage.sink(port=1).check()


def test_a_user_without_rights(stage):
    stage.ready()
    stage.query("DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN")
    with pytest.raises(SinkError, match="PostgreSQL refuses the user: permission denied") as raised:
        stage.sink(user="guest").prepare(None)
    assert "GRANT USAGE, CREATE ON SCHEMA" in raised.value.fix


def test_rows_that_are_there_already(stage):
    assert stage.sink(time="at").rows_in((0, 100)) == 0
    sink = stage.ready(time="at")
    sink.commit(stamp(0), write(sink, table(A, B)))
    assert sink.rows_in((0, 20)) == 1
    assert sink.rows_in((20, 21)) == 1
    assert sink.rows_in((21, 10**15)) == 0
    assert stage.sink().rows_in((21, 22)) == 2
    assert stage.sink(time="name2").rows_in((0, 9)) == 0


def test_rows_outside_of_the_range_are_left_out(stage):
    sink = stage.ready(time="at")
    sink.commit(stamp(0), write(sink, table(A, (9, -1, "before"))))
    assert stage.rows() == [(1, "a")]


def test_a_shadow_and_what_into_may_name(stage):
    section = stage.section()
    assert SINKS.find("postgres") is type(section)
    assert section.pin("{}", "marts.plays__r1").place == "postgres:marts.plays__r1"
    for wrong in ("plays", "a.b.c", "a.", f"a.{'b' * 64}"):
        with pytest.raises(PlanError):
            section.check_target(wrong)
    with pytest.raises(PlanError, match="more than 63 bytes"):
        section.pin("{}", f"marts.{'x' * 50}__20260101-000000-abcdef")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"table": "plays"}, "'plays' is not schema.table"),
        ({"mode": "upsert"}, "mode: upsert needs a key"),
        ({"options": {"password": "x"}}, "the option 'password' is not free"),
    ],
)
def test_a_section_that_is_wrong(stage, more, message):
    with pytest.raises(ValueError, match=message):
        stage.section(**more)


def test_two_tables_of_one_name_on_two_servers_are_two_places(stage):
    here, there = stage.section(), stage.section(host="elsewhere")
    assert not here.writes("a.b").keys() & there.writes("a.b").keys()
    assert here.writes("a.b").keys() == stage.section(mode="upsert", key="id").writes("a.b").keys()
