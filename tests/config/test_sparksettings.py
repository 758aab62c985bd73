import pytest

from tests.config.test_loader import GOOD, load, refusal
from tidemill.config.sparksettings import MEANING, OURS, is_meaning, meaning, promised, refused

WRONG = {
    "spark.sql.streaming.noDataMicroBatches.enabled": False,
    "spark.sql.streaming.multipleWatermarkPolicy": "max",
    "spark.sql.streaming.statefulOperator.allowMultiple": False,
    "spark.sql.streaming.statefulOperator.checkCorrectness.enabled": False,
    "spark.sql.streaming.statefulOperator.useStrictDistribution": False,
    "spark.sql.streaming.unsupportedOperationCheck": False,
    "spark.sql.streaming.validateEventTimeWatermarkColumn": False,
    "spark.sql.streaming.stateStore.skipNullsForStreamStreamJoins.enabled": True,
    "spark.sql.streaming.stateStore.stateSchemaCheck": False,
    "spark.sql.streaming.stateStore.formatValidation.enabled": False,
    "spark.sql.streaming.stateStore.checkpointFormatVersion": 2,
    "spark.sql.streaming.join.stateFormatVersion": 1,
    "spark.sql.streaming.offsetLog.formatVersion": 2,
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": True,
    "spark.sql.streaming.queryEvolution.enableSinkEvolution": True,
    "spark.sql.streaming.minBatchesToRetain": 2,
    "spark.sql.streaming.pollingDelay": "1s",
    "spark.sql.adaptive.enabled": True,
    "spark.sql.optimizer.excludedRules": "a.Rule",
    "spark.sql.optimizer.singleTaskExecution.enabled": True,
    "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan": True,
    "spark.sql.exchange.reuse": True,
    "spark.sql.execution.sortBeforeRepartition": False,
    "spark.sql.session.timeZone": "Europe/Berlin",
    "spark.master": "local[4]",
    "spark.remote": "sc://host",
    "spark.api.mode": "connect",
}


def with_conf(key, value):
    return GOOD.replace("spark.sql.shuffle.partitions: 4", f"{key}: {value}")


def test_every_setting_of_ours_is_tried():
    assert set(WRONG) == {setting.key for setting in OURS}


@pytest.mark.parametrize(("key", "value"), WRONG.items(), ids=list(WRONG))
def test_a_setting_that_breaks_the_promise_is_refused(tmp_path, key, value):
    error = refusal(tmp_path, with_conf(key, f"'{value}'" if isinstance(value, str) else value))
    setting = next(setting for setting in OURS if setting.key == key)
    assert (
        error.message
        == f"{key} is {str(value).lower() if value in (True, False) else value}: "
        + (setting.reason)
    )
    assert error.facts["path"] == f"spark.conf.{key}"
    assert ":6 " in error.where, "the line of the setting"
    assert error.fix == setting.fix


@pytest.mark.parametrize("setting", [found for found in OURS if found.values])
def test_the_value_that_keeps_the_promise_may_be_written(tmp_path, setting):
    for value in setting.values:
        assert load(tmp_path, with_conf(setting.key, f"'{value}'"))


@pytest.mark.parametrize(
    "key",
    [
        "spark.speculation",
        "spark.task.maxFailures",
        "spark.python.worker.reuse",
        "spark.sql.streaming.stateStore.providerClass",
        "spark.sql.autoBroadcastJoinThreshold",
        "spark.sql.streaming.stopTimeout",
        "spark.sql.execution.arrow.maxRecordsPerBatch",
        "spark.sql.ansi.enabled",
    ],
)
def test_other_settings_are_free(key):
    assert not list(refused({key: "x"}))


def test_a_value_is_compared_as_spark_reads_it():
    key = "spark.sql.streaming.noDataMicroBatches.enabled"
    assert [list(refused({key: value})) for value in (True, "true", "TRUE", " true ")] == [[]] * 4
    assert [setting.key for setting, _ in refused({key: "False"})] == [key]


def test_what_all_sessions_get():
    found = promised()
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert found["spark.sql.adaptive.enabled"] == "false"
    assert "spark.sql.streaming.join.stateFormatVersion" not in found, "several values are right"
    assert "spark.master" not in found


def test_settings_that_change_what_code_means():
    assert is_meaning("spark.sql.ansi.enabled")
    assert is_meaning("spark.sql.legacy.timeParserPolicy")
    assert is_meaning("spark.sql.caseSensitive")
    assert not is_meaning("spark.sql.caseSensitiveX")
    assert not is_meaning("spark.sql.ansi")
    assert not any(is_meaning(setting.key) for setting in OURS)
    given = {"spark.sql.legacy.x": 1, "spark.sql.ansi.enabled": False, "spark.cores.max": 3}
    assert meaning(given) == {"spark.sql.ansi.enabled": "false", "spark.sql.legacy.x": "1"}
    assert list(MEANING) == sorted(MEANING)
