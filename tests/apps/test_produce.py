"""The apps' producers and the apps in a hurry, without a broker."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from apps.playback.produce import START, Record, make_bursts, make_records
from apps.sessions import generate as app

import tidemill
from apps import haste

BEGIN = datetime(2026, 5, 1, 12, tzinfo=UTC)


def bursts(seed: int, speed: float) -> list[tuple[datetime, list[Record]]]:
    hours = app.make_hours(rows=600, hours=3, seed=3)
    return list(
        make_bursts(make_records("sessions", hours, BEGIN, START, speed), seed, BEGIN, speed)
    )


def test_same_seed_same_bursts() -> None:
    assert bursts(1, 1200) == bursts(1, 1200) != bursts(2, 1200)


@pytest.mark.parametrize("speed", [1, 1200])
def test_every_row_goes_out_after_it_is_due_and_after_a_pause_many_at_once(speed: float) -> None:
    made = bursts(1, speed)
    assert sum(len(records) for _, records in made) == sum(
        len(table) for hour in app.make_hours(rows=600, hours=3, seed=3) for table in hour.values()
    )
    waited = [(at - record.due) * speed for at, records in made for record in records]
    assert timedelta(0) <= min(waited) < timedelta(seconds=10)
    assert timedelta(minutes=10) < max(waited) < timedelta(minutes=16)
    assert max(len(records) for _, records in made) > 100


def test_all_times_are_drawn_together_alike() -> None:
    slow, quick = (
        [record for _, records in bursts(1, speed) for record in records] for speed in (1, 1200)
    )
    assert {record.topic for record in slow} == {"sessions.playbacks", "sessions.downloads"}
    for topic in ("sessions.playbacks", "sessions.downloads"):
        pairs = zip(delays(slow, topic), delays(quick, topic), strict=True)
        assert all(abs(one / 1200 - other) <= timedelta(milliseconds=1) for one, other in pairs)


def delays(records: list[Record], topic: str) -> list[timedelta]:
    return sorted(
        record.due - datetime.fromisoformat(json.loads(record.value)["event_ts"])
        for record in records
        if record.topic == topic
    )


@pytest.mark.parametrize("name", ["playback", "sessions", "rmi"])
def test_an_app_in_a_hurry_is_the_same_but_for_its_durations(name: str, tmp_path: Path) -> None:
    haste.copy_app(name, tmp_path, 600)
    calm = tidemill.load(haste.APPS / name / "tidemill.yaml").config
    quick = tidemill.load(tmp_path / "tidemill.yaml").config
    for stream, config in calm.streams.items():
        assert quick.streams[stream].lateness * 600 == config.lateness
        assert quick.streams[stream].skew * 600 == config.skew
        assert quick.streams[stream].live == config.live
    code = (haste.APPS / name / "pipelines.py").read_text("utf-8")
    assert ("milliseconds" in (tmp_path / "pipelines.py").read_text("utf-8")) == (" min" in code)


def test_a_speed_that_does_not_divide_a_duration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="30 min is not a whole number of milliseconds"):
        haste.copy_app("sessions", tmp_path, 7_777)
