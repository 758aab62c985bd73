"""`tidemill init --archive`: what it finds in data of three shapes, writes, and refuses."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from tests.bad_input.terminal import Outcome, run_cli
from tests.starter.shapes import (
    DAY,
    LAKE,
    SHAPES,
    START,
    open_lake,
    readings,
    times,
    trips,
    web_logs,
    with_column,
    write_folder,
    write_table,
)
from tidemill.config.loader import load_config
from tidemill.starter.own_data.looking import SAMPLE
from tidemill.types import SECOND


def found_in(folder: Path, *arguments: object) -> Any:
    """What init says, as JSON, of an archive; the project is in `p`."""
    told = run_cli("init", "p", "--json", "--archive", *arguments, cwd=folder)
    assert told.code == 0, told.err
    return json.loads(told.out)


def refused(folder: Path, *arguments: object) -> Outcome:
    """It ends with an error and leaves nothing behind."""
    told = run_cli("init", "p", "--archive", *arguments, cwd=folder)
    assert told.code in (1, 2) and told.out == ""
    assert not (folder / "p").exists()
    return told


TRIPS = {
    "event_time": "tpep_pickup_datetime",
    "ingest_time": None,
    "zone": "UTC",
    "delays": None,
    "partition": None,
    "key": "VendorID",
    "measure": "fare_amount",
    "window": "1 hour",
    "pipeline": "trips_per_vendor_id",
}
WEB_LOGS = {
    "event_time": "time",
    "ingest_time": "received_at",
    "zone": "UTC",
    "partition": "kafka_partition",
    "offset": "kafka_offset",
    "key": "path",
    "measure": "bytes",
    "window": "10 minutes",
    "pipeline": "weblogs_per_path",
    "nearly_times": {"line_time": "text that reads as a time"},
}
READINGS = {
    "event_time": "measuredAt",
    "ingest_time": "ingested_at",
    "zone": "Etc/GMT-2",
    "key": "sensor id",
    "measure": "temperature",
    "window": "1 minute",
    "pipeline": "readings_per_sensor_id",
}
EXPECTED = {"trips": TRIPS, "weblogs": WEB_LOGS, "readings": READINGS}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["parquet", "iceberg", "delta"])
def test_data_of_three_shapes(tmp_path: Path, shape: str, kind: str) -> None:
    rows = SHAPES[shape]()
    place: tuple[str, ...] = (shape,)
    if kind == "parquet":
        write_folder(rows, tmp_path / shape)
    elif kind == "iceberg":
        rows = with_column(rows, passenger_count=None)  # Iceberg has no unsigned numbers
        write_table(rows, tmp_path, f"raw.{shape}")
        place = (f"raw.{shape}", *LAKE)
    else:
        from deltalake import write_deltalake

        write_deltalake(tmp_path / shape, with_column(rows, passenger_count=None))
    found = found_in(tmp_path, *place)
    assert {name: found[name] for name in EXPECTED[shape]} == EXPECTED[shape]
    assert (found["rows"], found["looked_at"]) == (len(rows), len(rows))
    assert found["files"] == (1 if kind == "delta" else 3)
    written = load_config(tmp_path / "p" / "tidemill.yaml").config
    stream = written.streams[shape]
    assert stream.archive is not None and stream.archive.type == kind
    assert stream.event_time == found["event_time"] and stream.zone == found["zone"]
    assert stream.archive.ingest_time == (found["ingest_time"] or found["event_time"])
    assert (stream.archive.partition, stream.archive.offset) == (
        found["partition"],
        found["offset"],
    )
    assert list(written.pipelines) == [found["pipeline"]]
    compile((tmp_path / "p" / "pipelines.py").read_text("utf-8"), "pipelines.py", "exec")


def test_lateness_follows_from_the_delays(tmp_path: Path) -> None:
    write_folder(web_logs(), tmp_path / "logs")
    delays = found_in(tmp_path, "logs")["delays"]
    assert delays["rows"] == 4_000
    assert 14 < delays["p50_seconds"] < 16 and 29 < delays["p99_seconds"] <= 30
    assert delays["max_seconds"] == 7_200
    assert (delays["lateness"], delays["skew"]) == ("30s", "0")
    assert delays["late_share"] == 2 / 4_000 and delays["future_share"] == 0
    text = (tmp_path / "p" / "tidemill.yaml").read_text("utf-8")
    told = " ".join(re.findall(r"^ *# (.*)$", text, re.MULTILINE))
    assert "Delays (received_at − time) of 4,000 rows: p50 15s, p99 30s, p99.9 30s, max 2h" in told
    assert "With lateness 30s, 0.05 % of the rows would be late" in told
    assert "after a look at 4,000 of 4,000 rows in 3 files" in told
    assert "The column 'line_time' is text that reads as a time (01/Jan/2026:00:00:01" in told


def test_a_longer_delay_that_costs_little_is_taken_in(tmp_path: Path) -> None:
    rows = web_logs()
    late = [
        at - (100 if n == 3 else 31) * SECOND for n, at in enumerate(micros(rows, "received_at"))
    ]
    write_folder(with_column(rows, time=times(late)), tmp_path / "logs")
    found = found_in(tmp_path, "logs")["delays"]
    assert (found["lateness"], found["late_share"]) == ("2min", 0)


def micros(rows: pa.Table, column: str) -> list[int]:
    return rows[column].cast(pa.int64()).to_pylist()


def test_without_ingest_time_the_project_says_what_that_means(tmp_path: Path) -> None:
    write_folder(trips(), tmp_path / "trips")
    told = run_cli("init", "p", "--archive", "trips", cwd=tmp_path)
    said = " ".join(told.out.split())
    assert "No column tells when the log accepted a row (its ingest time)" in said
    assert "lateness is 0: every row counts as on time" in said
    assert "say --ingest-time tpep_dropoff_datetime" in said
    assert "The times of tpep_pickup_datetime carry no zone: they are taken as UTC." in said
    written = yaml.safe_load((tmp_path / "p" / "tidemill.yaml").read_text("utf-8"))
    stream = written["streams"]["trips"]
    assert stream["archive"]["ingest_time"] == stream["event_time"] == "tpep_pickup_datetime"
    assert stream["lateness"] == 0 and stream["zone"] == "UTC"


def test_what_the_user_says_counts(tmp_path: Path) -> None:
    write_folder(trips(), tmp_path / "trips")
    given = ("--event-time", "tpep_pickup_datetime", "--ingest-time", "tpep_dropoff_datetime")
    found = found_in(tmp_path, "trips", *given)
    assert found["ingest_time"] == "tpep_dropoff_datetime"
    assert found["delays"]["lateness"] == "1h"


def test_a_weak_name_is_the_ingest_time_only_if_its_times_are(tmp_path: Path) -> None:
    rows = with_column(web_logs(), received_at=None, created_at=web_logs()["received_at"])
    write_folder(rows, tmp_path / "logs")
    assert found_in(tmp_path, "logs")["ingest_time"] == "created_at"
    before = times([at - 3_600 * SECOND for at in micros(rows, "time")])
    (tmp_path / "b").mkdir()
    write_folder(with_column(rows, created_at=before), tmp_path / "b" / "logs")
    assert found_in(tmp_path / "b", "logs")["ingest_time"] is None


def test_local_times_are_seen(tmp_path: Path) -> None:
    write_folder(readings(), tmp_path / "readings")
    found = found_in(tmp_path, "readings")
    assert found["zone"] == "Etc/GMT-2"
    assert found["delays"]["lateness"] == "5s" and found["delays"]["late_share"] == 0
    assert any("most lie about 2h after the ingest time" in note for note in found["notes"])
    west = [at - 5 * 3_600 * SECOND for at in micros(readings(), "ingested_at")]
    (tmp_path / "b").mkdir()
    rows = with_column(readings(), measuredAt=times(west, None))
    write_folder(rows, tmp_path / "b" / "readings")
    found = found_in(tmp_path / "b", "readings")
    assert found["zone"] == "UTC"
    assert any("say so, for example zone: America/New_York" in note for note in found["notes"])


def test_the_range_has_all_rows_but_those_of_wrong_clocks(tmp_path: Path) -> None:
    write_folder(trips(), tmp_path / "trips")
    found = found_in(tmp_path, "trips")
    assert (found["from"], found["to"]) == ("2026-01-01T00:00Z", "2026-01-21T00:00Z")
    odd = [START - 8_000 * DAY, *micros(trips(), "tpep_pickup_datetime")[1:-1], START + 9_000 * DAY]
    rows = with_column(trips(), tpep_pickup_datetime=times(odd, None))
    (tmp_path / "b").mkdir()
    write_folder(rows, tmp_path / "b" / "trips")
    found = found_in(tmp_path / "b", "trips")
    assert "2025-12-30" < found["from"] < "2026-01-01T00:00"
    assert "2026-01-21T00:00" < found["to"] < "2026-01-23"
    assert any("probably have wrong clocks" in note for note in found["notes"])


def test_the_sample_is_bounded_and_from_everywhere(tmp_path: Path) -> None:
    count = 3 * SAMPLE
    rows = pa.table(
        {
            "event_time": times([START + n * SECOND for n in range(count)]),
            "shop": pa.array([n % 7 for n in range(count)], pa.int32()),
        }
    )
    write_folder(rows, tmp_path / "sales", files=2, row_group_size=10_000)
    found = found_in(tmp_path, "sales")
    assert found["rows"] == count and SAMPLE // 2 < found["looked_at"] <= SAMPLE
    assert (found["from"], found["to"]) == ("2026-01-01T00:00Z", "2026-01-07T23:00Z")
    assert not any("wrong clocks" in note for note in found["notes"])


@pytest.mark.parametrize(("partition", "offset"), [(0, 0), (-1, None), (2**31, None), (0, None)])
def test_positions_are_those_of_a_log(tmp_path: Path, partition: int, offset: int | None) -> None:
    """Every offset is there once; a partition is a small number."""
    rows, own = web_logs(), [] if offset is None else [offset] * 4_000
    rows = with_column(
        rows, kafka_partition=[partition] * 4_000, kafka_offset=own or list(range(4_000))
    )
    write_folder(rows, tmp_path / "logs")
    found = found_in(tmp_path, "logs")
    is_log = (partition, offset) == (0, None)
    assert found["partition"] == ("kafka_partition" if is_log else None)
    assert found["offset"] == ("kafka_offset" if is_log else None)


def test_folder_keys_and_odd_names(tmp_path: Path) -> None:
    """Keys of folders are columns; the names of files and columns need quoting."""
    place = tmp_path / "my data" / "dt=2026-01-01" / "region=eu"
    rows = pa.table(
        {"when it was": times([START + n for n in range(100)]), "the.host`s": ["a", "b"] * 50}
    )
    write_folder(rows, place)
    found = found_in(tmp_path, "my data")
    assert (found["stream"], found["key"]) == ("my_data", "the.host`s")
    assert found["region"] == "region"
    written = load_config(tmp_path / "p" / "tidemill.yaml").config.streams["my_data"]
    assert written.event_time == "when it was"
    code = (tmp_path / "p" / "pipelines.py").read_text("utf-8")
    assert 'F.col("`the.host``s`").alias("the_host_s")' in code


def test_the_paths_of_the_yaml_are_relative_to_it(tmp_path: Path) -> None:
    write_table(web_logs(), tmp_path, "raw.weblogs")
    given = (*LAKE, "--catalog", "warehouse=lake/out", "--catalog", "s3.endpoint=http://a?b=c")
    found_in(tmp_path, "raw.weblogs", *given)
    written = yaml.safe_load((tmp_path / "p" / "tidemill.yaml").read_text("utf-8"))
    assert written["catalog"] == {
        "uri": "sqlite:///../lake/catalog.db",
        "warehouse": "../lake/out",
        "name": "lake",
        "s3.endpoint": "http://a?b=c",
    }


def test_secrets_stay_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_table(web_logs(), tmp_path, "raw.weblogs")
    monkeypatch.setenv("LAKE_TOKEN", "a-secret-token")
    told = run_cli(
        "init", "p", "--archive", "raw.weblogs", *LAKE, "--catalog", "token=${LAKE_TOKEN}",
        cwd=tmp_path,
    )  # fmt: skip
    text = (tmp_path / "p" / "tidemill.yaml").read_text("utf-8")
    assert "${LAKE_TOKEN}" in text and "a-secret-token" not in text + told.out
    monkeypatch.delenv("LAKE_TOKEN")
    (tmp_path / "p").rename(tmp_path / "q")
    monkeypatch.setenv("LAKE_HOST", "secret-host")
    told = refused(tmp_path, "raw.weblogs", "--catalog", "nosql://${LAKE_HOST}/x")
    assert "the catalog cannot be opened" in told.err and "secret-host" not in told.err
    refused(tmp_path, "raw.weblogs", *LAKE, "--catalog", "token=${LAKE_TOKEN}").refuses(
        "--catalog: the environment variable LAKE_TOKEN is not set\n  fix: export LAKE_TOKEN=…"
    )


# What is refused.


def test_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "a.csv").touch()
    refused(tmp_path, "empty").refuses(
        "--archive: there are no Parquet files below empty\n"
        "  fix: name a folder that has .parquet files; write CSV or JSON files as Parquet first"
    )


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "zones.csv").touch()
    refused(tmp_path, "zones.csv").refuses(
        "--archive: zones.csv is a file, and an archive is a folder of Parquet files\n"
        "  fix: write it as Parquet into a folder of its own first, and name that folder"
    )


def test_a_folder_without_rows(tmp_path: Path) -> None:
    write_folder(trips().slice(0, 0), tmp_path / "trips", files=1, row_group_size=1)
    refused(tmp_path, "trips").refuses(
        "--archive trips: the archive has no rows, or its kind does not let 'init' look at them\n"
        "  fix: name one that has rows, or write the YAML by hand"
    )


def test_no_time_at_all(tmp_path: Path) -> None:
    write_folder(pa.table({"id": [1, 2], "name": ["a", "b"]}), tmp_path / "names", 1)
    refused(tmp_path, "names").refuses(
        "--archive: no column is a timestamp with values; found: id int64, name string\n"
        "  fix: every row must tell when it happened: write the archive with such a column"
    )


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["2026-01-01 00:00:05", "2026-01-01 00:10:05"], "text that reads as a time"),
        (["1/31/2026 11:15:00 PM", "2/1/2026 01:15:00 AM"], "text that reads as a time"),
        ([1_767_225_600, 1_767_225_601], "a number of seconds since 1970"),
        ([1_767_225_600_000, 1_767_225_600_001], "a number of milliseconds since 1970"),
        (["2026-01-01", "2026-01-02"], "a date"),
    ],
)
def test_a_time_that_is_no_timestamp_is_named(tmp_path: Path, values, kind) -> None:
    write_folder(pa.table({"event_ts": values}), tmp_path / "events", 1)
    for given in ((), ("--event-time", "event_ts")):
        told = refused(tmp_path, "events", *given)
        assert f"fix: 'event_ts' is {kind} ({values[0]}), not a timestamp: to use it," in told.err
        assert " write the archive again with this column cast to a timestamp\n" in told.err


def test_an_unknown_column(tmp_path: Path) -> None:
    write_folder(trips(), tmp_path / "trips")
    refused(tmp_path, "trips", "--event-time", "tpep_pickup_datetim").refuses(
        "--event-time: there is no column 'tpep_pickup_datetim'\n"
        "  fix: did you mean 'tpep_pickup_datetime'?"
    )
    told = refused(tmp_path, "trips", "--ingest-time", "fare_amount")
    assert "the column 'fare_amount' is double, not a timestamp" in told.err


def test_a_corrupt_file(tmp_path: Path) -> None:
    write_folder(trips(), tmp_path / "trips")
    whole = (tmp_path / "trips" / "1.parquet").read_bytes()
    for spoilt in (whole[:100], whole[:4] + b"\xff" * (len(whole) - 3_000) + whole[-2_996:]):
        (tmp_path / "trips" / "1.parquet").write_bytes(spoilt)
        told = refused(tmp_path, "trips")
        assert "1.parquet: the " in told.err and "cannot be read: " in told.err
        assert "\n  fix: restore the file from a copy" in told.err


def test_rows_without_a_time_cannot_be_in_a_slice(tmp_path: Path) -> None:
    """Far from the sample: the statistics tell of it."""
    at = micros(trips(), "tpep_pickup_datetime")
    rows = with_column(trips(), tpep_pickup_datetime=times([*at[:-1], None], None))
    write_folder(rows, tmp_path / "trips")
    told = refused(tmp_path, "trips")
    assert "the event time 'tpep_pickup_datetime' cannot stand for it: 1 of 2,000" in told.err
    assert "fix: say --event-time tpep_dropoff_datetime" in told.err


def test_an_ingest_time_without_statistics_is_no_ingest_time(tmp_path: Path) -> None:
    others = [name for name in web_logs().column_names if name != "received_at"]
    write_folder(web_logs(), tmp_path / "logs", write_statistics=others)
    found = found_in(tmp_path, "logs")
    assert found["ingest_time"] is None
    assert (
        "received_at cannot be the ingest time, which every row must have: "
        "0.parquet: the file has no statistics of received_at." in found["notes"]
    )
    told = run_cli("init", "q", "--archive", "logs", "--ingest-time", "received_at", cwd=tmp_path)
    assert "the file has no statistics of received_at" in told.err and told.code == 1


def test_an_ingest_time_that_some_rows_lack_is_no_ingest_time(tmp_path: Path) -> None:
    seen = [None, *micros(web_logs(), "received_at")[1:]]
    write_folder(with_column(web_logs(), received_at=times(seen)), tmp_path / "logs")
    found = found_in(tmp_path, "logs")
    assert (found["event_time"], found["ingest_time"]) == ("time", None)
    assert any("received_at cannot be the ingest time" in note for note in found["notes"])
    told = run_cli("init", "q", "--archive", "logs", "--ingest-time", "received_at", cwd=tmp_path)
    assert "1 rows have no received_at" in told.err and told.code == 1


def test_a_column_without_values(tmp_path: Path) -> None:
    rows = with_column(web_logs(), expires_at=times([None] * 4_000))
    write_folder(rows, tmp_path / "logs")
    refused(tmp_path, "logs", "--event-time", "expires_at").refuses(
        "--event-time: the column 'expires_at' has no value in the 4,000 rows that were looked at\n"
        "  fix: name a timestamp: time, received_at"
    )
    assert found_in(tmp_path, "logs")["event_time"] == "time"


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    write_folder(trips(), tmp_path / "trips")
    for name in ("tidemill.yaml", "pipelines.py"):
        project = tmp_path / name.partition(".")[0]
        project.mkdir()
        (project / name).write_text("mine", "utf-8")
        told = run_cli("init", project.name, "--archive", "trips", cwd=tmp_path)
        told.refuses(
            f"{project}: there is a {name} already\n"
            "  fix: run 'tidemill init' in an empty folder, or 'tidemill init FOLDER'"
        )
        assert [path.read_text("utf-8") for path in project.iterdir()] == ["mine"]


def test_a_project_inside_of_its_own_archive(tmp_path: Path) -> None:
    write_folder(trips(), tmp_path / "trips")
    told = run_cli("init", "--archive", ".", cwd=tmp_path / "trips")
    assert "the project would lie in the archive's own folder" in told.err and told.code == 2
    assert not (tmp_path / "trips" / "tidemill.yaml").exists()


def test_a_file_a_typing_error_and_an_option_alone(tmp_path: Path) -> None:
    write_folder(trips(), tmp_path / "trips")
    told = refused(tmp_path, "trips/0.parquet")
    assert told.err.endswith("fix: name the folder that it is in: --archive trips\n")
    assert "'tripps' is neither a folder nor the name of a table" in refused(tmp_path, "tripps").err
    assert "neither a folder nor" in refused(tmp_path, "moon://trips/all").err
    told = run_cli("init", "p", "--event-time", "at", cwd=tmp_path)
    assert "--event-time needs --archive" in told.err and told.code == 2


def test_tables_that_are_not_found(tmp_path: Path) -> None:
    write_table(trips().drop(["passenger_count"]), tmp_path, "raw.trips")
    refused(tmp_path, "raw.trip", *LAKE).refuses(
        "--archive: the table 'raw.trip' does not exist\n  fix: did you mean 'raw.trips'?", code=1
    )
    assert (
        "the table's catalog is not known\n  fix: say where" in refused(tmp_path, "raw.trips").err
    )
    told = refused(tmp_path, "raw.trips", "--catalog", "sqlite:///lake/catalogue.db")
    assert f"there is no catalog {tmp_path}/lake/catalogue.db" in told.err
    assert "'lake' is neither a URI nor" in refused(tmp_path, "raw.trips", "--catalog", "lake").err
    told = refused(tmp_path, "lake")
    assert "the folder holds the files of an Iceberg table" in told.err


def test_columns_of_a_table_are_found_by_their_ids(tmp_path: Path) -> None:
    """A renamed column keeps its values, and a new one of the old name has none in old files."""
    write_table(web_logs(), tmp_path, "raw.weblogs")
    table = open_lake(tmp_path).load_table("raw.weblogs")
    with table.update_schema() as change:
        change.rename_column("path", "page")
        change.rename_column("bytes", "other")
    with table.update_schema() as change:
        change.add_column("bytes", table.schema().find_type("other"))
    found = found_in(tmp_path, "raw.weblogs", *LAKE)
    assert (found["key"], found["measure"]) == ("page", None)


def test_without_an_archive_it_writes_events_of_its_own(tmp_path: Path) -> None:
    told = run_cli("init", "p", "--json", cwd=tmp_path)
    assert json.loads(told.out) == {
        "rows": 120_000,
        "from": "2026-01-01T00:00Z",
        "to": "2026-01-02T00:00Z",
    }
    assert (tmp_path / "p" / "tidemill.yaml").exists()
