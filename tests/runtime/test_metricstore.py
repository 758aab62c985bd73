"""Metrics in the registry: bounded, and each batch counts once, however often it is recorded."""

import pytest

from tests.planning.metrics.staged import AT, batch
from tidemill.planning.metrics.hours import HOUR_MICROS
from tidemill.runtime import metricstore
from tidemill.runtime.registry import BatchRecord, Registry


@pytest.fixture
def registry(tmp_path, monkeypatch):
    monkeypatch.setattr(metricstore, "KEPT", 10)
    monkeypatch.setattr(metricstore, "_ROUND", 1)
    found = Registry(tmp_path / "registry.db")
    found.add("r1", "plays", "backfill")
    return found


def record(registry, number, **changes):
    counted = BatchRecord(number, number, 0, 1, 0, 0, 0, 0, 0.1)
    registry.record_batch("r1", counted, batch(number, **changes))


def test_the_newest_batches_are_whole_and_older_ones_are_hours(registry):
    for number in range(100):
        record(registry, number, at=AT + number * HOUR_MICROS // 36)
    found = registry.metrics("r1")
    assert [each.batch for each in found.batches] == list(range(90, 100))
    assert [(hour.first, hour.batches) for hour in found.hours] == [(0, 36), (36, 36), (72, 18)]
    assert sum(hour.on_time for hour in found.hours) == 9_000_000
    assert registry.metrics("r1", 3).hours == ()
    assert [each.batch for each in registry.metrics("r1", 3).batches] == [97, 98, 99]


def test_many_batches_at_once_are_the_same_hours(registry, monkeypatch):
    for number in range(40):
        record(registry, number, at=AT + number * HOUR_MICROS // 7)
    one_by_one = registry.metrics("r1")
    monkeypatch.setattr(metricstore, "_ROUND", 13)
    registry.add("r2", "plays", "backfill")
    for number in range(40):
        counted = BatchRecord(number, number, 0, 1, 0, 0, 0, 0, 0.1)
        registry.record_batch("r2", counted, batch(number, at=AT + number * HOUR_MICROS // 7))
    found = registry.metrics("r2")
    assert found.hours == one_by_one.hours and found.batches == one_by_one.batches


def test_a_batch_that_is_recorded_again_counts_once(registry):
    for number in range(30):
        record(registry, number, late=1)
        record(registry, number)  # its driver was killed before Spark noted the commit
        if number >= 12:
            record(registry, 1, on_time=10**9)  # in an hour already
    found = registry.metrics("r1")
    assert len(found.batches) == 10
    assert sum(hour.late for hour in found.hours) == 200
    assert sum(hour.on_time for hour in found.hours) == 2_000_000
    assert {each.late for each in found.batches} == {10}


def test_a_run_taken_back_replaces_what_it_does_again(registry):
    for number in range(20):
        record(registry, number)
    for number in range(15, 18):
        record(registry, number, out=1)
    found = {each.batch: each.out for each in registry.metrics("r1").batches}
    assert [found[number] for number in range(14, 19)] == [5_000, 1, 1, 1, 5_000]


def test_hours_are_bounded_too(registry, monkeypatch):
    monkeypatch.setattr(metricstore, "KEPT_HOURS", 3)
    for number in range(20):
        record(registry, number, at=number * HOUR_MICROS)
    found = registry.metrics("r1")
    assert [hour.hour // HOUR_MICROS for hour in found.hours] == [7, 8, 9]


def test_what_is_forgotten_leaves_no_metrics(registry):
    record(registry, 0)
    registry.remove("r1")
    assert registry.metrics("r1").batches == ()


def test_a_batch_without_figures_is_no_error(registry):
    registry.record_batch("r1", BatchRecord(0, 1, 0, 1, 0, 0, 0, 0, 0.1))
    assert registry.metrics("r1").batches == ()


def test_a_registry_of_an_earlier_version_gets_the_tables(tmp_path):
    import sqlite3

    path = tmp_path / "registry.db"
    Registry(path).add("r1", "plays", "run")
    with sqlite3.connect(path) as connection:
        connection.execute("drop table metrics")
        connection.execute("drop table metric_hours")
        connection.execute("pragma user_version = 2")
    found = Registry(path)
    record(found, 0)
    assert [each.batch for each in found.metrics("r1").batches] == [0]
