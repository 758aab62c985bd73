"""Which Spark settings the promise of equal rows rests on, and which change what code means.

Three kinds. *Ours*: with another value rows would be lost or doubled, so the YAML may not give it
and every session gets ours for the time of a run, whatever its own files and variables say.
*Meaning*: they change what a pipeline's code means; they are free, but fixed for the life of a run.
All others are free: they change how fast a run is, not its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_STREAMING = "spark.sql.streaming."
REUSE = "spark.sql.exchange.reuse"


@dataclass(frozen=True)
class Setting:
    """A setting of ours: the values that keep the promise (the first is set), and why."""

    key: str
    values: tuple[str, ...]  # none: the run decides it, and nobody may give it
    reason: str
    fix: str = "leave it out"


OURS = (
    Setting(
        f"{_STREAMING}noDataMicroBatches.enabled",
        ("true",),
        "the batch without rows closes the last windows; without it they are never given",
    ),
    Setting(
        f"{_STREAMING}multipleWatermarkPolicy",
        ("min",),
        "the watermark is that of the slowest source; rows of the others would be dropped as late",
    ),
    Setting(
        f"{_STREAMING}statefulOperator.allowMultiple",
        ("true",),
        "of two stateful operators in a row the second would drop the first one's rows as late",
    ),
    Setting(
        f"{_STREAMING}statefulOperator.checkCorrectness.enabled",
        ("true",),
        "Spark would run queries whose rows it knows to be wrong",
    ),
    Setting(
        f"{_STREAMING}statefulOperator.useStrictDistribution",
        ("true",),
        "rows of one key could meet the state of another partition",
    ),
    Setting(
        f"{_STREAMING}unsupportedOperationCheck",
        ("true",),
        "Spark would run queries that a stream cannot answer",
    ),
    Setting(
        f"{_STREAMING}validateEventTimeWatermarkColumn",
        ("true",),
        "a query without a usable watermark would run, and never close a window",
    ),
    Setting(
        f"{_STREAMING}stateStore.skipNullsForStreamStreamJoins.enabled",
        ("false",),
        "a join would pass over rows that its state has lost, instead of stopping",
    ),
    Setting(
        f"{_STREAMING}stateStore.stateSchemaCheck",
        ("true",),
        "state of another shape would be read as if it fitted",
    ),
    Setting(
        f"{_STREAMING}stateStore.formatValidation.enabled",
        ("true",),
        "damaged state would be read as if it were whole",
    ),
    Setting(
        f"{_STREAMING}stateStore.checkpointFormatVersion",
        ("1",),
        "'tidemill rewind' takes Spark's state back by the names that files have in version 1",
    ),
    Setting(
        f"{_STREAMING}join.stateFormatVersion",
        ("2", "3", "4"),
        "version 1 of a join's state gives wrong rows in outer joins",
    ),
    Setting(
        f"{_STREAMING}offsetLog.formatVersion",
        ("1",),
        "the run reads its place from Spark's offset log, in version 1",
    ),
    Setting(
        f"{_STREAMING}queryEvolution.enableSourceEvolution",
        ("false",),
        "the run reads its place from Spark's offset log, which would name sources differently",
    ),
    Setting(
        f"{_STREAMING}queryEvolution.enableSinkEvolution",
        ("false",),
        "the run reads its place from Spark's commit log, which would be written differently",
    ),
    Setting(
        f"{_STREAMING}minBatchesToRetain",
        (),
        "the run keeps as many batches as one can rewind",
        "say keep_batches: in the pipeline's section",
    ),
    Setting(
        f"{_STREAMING}pollingDelay",
        (),
        "the run decides how often Spark asks its sources",
        "say trigger: in the pipeline's section, or --trigger",
    ),
    Setting(
        "spark.sql.adaptive.enabled",
        ("false",),
        "a bucket of an operator's keys without new rows would not run, and keep its windows open",
    ),
    Setting(
        "spark.sql.optimizer.excludedRules",
        (),
        "the run takes out the rule that would leave out buckets without rows, and no other",
    ),
    Setting(
        "spark.sql.optimizer.singleTaskExecution.enabled",
        ("false",),
        "a bucket of an operator's keys is the number of its task, which would change",
    ),
    Setting(
        "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan",
        ("false",),
        "a source whose rows are filtered out would be left out, and its watermark with it",
    ),
    Setting(
        REUSE,
        (),
        "the run turns it off where Spark's own stateful operators would share a shuffle's rows: "
        "of two only the first would get a watermark, the other would give no rows",
    ),
    Setting(
        "spark.sql.execution.sortBeforeRepartition",
        ("true",),
        "a task that runs again would deal rows out differently: some lost, some doubled",
    ),
    Setting(
        "spark.sql.session.timeZone",
        ("UTC",),
        "times without a zone are read as UTC in history and live alike",
        "say zone: in the stream's section, and convert times in the pipeline's code",
    ),
    Setting(
        "spark.master", (), "the run plans its tasks by it", "say master: in the section spark:"
    ),
    Setting("spark.remote", (), "a run needs its driver's own JVM, not Spark Connect"),
    Setting("spark.api.mode", ("classic",), "a run needs its driver's own JVM, not Spark Connect"),
)
"""One row per setting; a list in the docs is made of it."""

MEANING = tuple(
    f"spark.sql.{name}"
    for name in (
        *("analyzer.", "ansi.", "caseSensitive", "charAsVarchar", "collation."),
        *("columnNameOfCorruptRecord", "crossJoin.enabled", "csv.", "datetime.java8API.enabled"),
        *("decimalOperations.", "execution.pandas.", "execution.pyspark.binaryAsBytes"),
        *("execution.pythonUDF.", "execution.pythonUDTF.", "files.ignoreCorruptFiles"),
        *("files.ignoreMissingFiles", "function.", "groupByAliases", "groupByOrdinal", "icu."),
        *("json.", "jsonGenerator.", "lateralColumnAlias.", "legacy.", "mapKeyDedupPolicy"),
        *("orderByOrdinal", "parser.", "pyspark.inferNestedDictAsStruct.enabled"),
        *("readSideCharPadding", "retainGroupColumns", "storeAssignmentPolicy", "timestampType"),
        *("variant.",),
    )
)
"""Settings that change what code means; a name that ends with a point stands for all below it."""

Values = Mapping[str, str | int | float | bool]


def as_text(value: str | int | float | bool) -> str:
    """A value of the YAML as Spark takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def refused(conf: Values) -> Iterable[tuple[Setting, str]]:
    """The settings that may not be given, each with the value that was."""
    for setting in OURS:
        if setting.key in conf:
            given = as_text(conf[setting.key])
            if given.strip().casefold() not in {value.casefold() for value in setting.values}:
                yield setting, given


def promised() -> dict[str, str]:
    """What every session gets for the time of a run, where one value is right for all runs."""
    return {
        setting.key: setting.values[0]
        for setting in OURS
        if len(setting.values) == 1 and setting.key.startswith("spark.sql.")
    }


def is_meaning(key: str) -> bool:
    """Whether a setting changes what code means."""
    return any(key == name or (name[-1] == "." and key.startswith(name)) for name in MEANING)


def meaning(conf: Values) -> dict[str, str]:
    """The settings among these that change what code means: fixed for the life of a run."""
    return {key: as_text(value) for key, value in sorted(conf.items()) if is_meaning(key)}
