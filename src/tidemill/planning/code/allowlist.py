"""What a plan may use without breaking the promise of equal rows, and advice for all else.

In append mode Spark accepts many operators whose result depends on the order of arrival or on how
the input is cut. A plan may only hold nodes and aggregates that are known to depend on neither.
Among row-wise expressions the clock, random numbers and the layout of partitions are refused.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from tidemill.errors import PlanError
from tidemill.planning.code.analysis import Usage
from tidemill.planning.code.behaviour import BY_LOT

NODES = frozenset(
    (
        *("Aggregate", "CTERelationDef", "CTERelationRef", "Distinct", "EventTimeWatermark"),
        *("Expand", "Filter", "Generate", "Join", "LocalRelation", "LogicalRDD"),
        *("OneRowRelation", "Project"),
        *("Range", "Repartition", "RepartitionByExpression", "ResolvedHint", "StreamingRelation"),
        *("StreamingRelationV2", "SubqueryAlias", "Union", "UpdateEventTimeWatermarkColumn"),
        *("View", "WithCTE"),
    )
)
"""Plan nodes that are row-wise, or stateful by event time alone."""

AGGREGATES = frozenset(
    (
        *("Average", "BitAndAgg", "BitOrAgg", "BitXorAgg", "BoolAnd", "BoolOr", "Count"),
        *("CountIf", "HyperLogLogPlusPlus", "Max", "Min", "Sum", "TryAverage", "TrySum"),
    )
)
"""Aggregates whose result does not depend on the order of the rows."""

_UNPINNED = "a table read beside the stream is not pinned; name it in tables: of the YAML"
_ADVICE = {
    "First": "use min or max of a column, or first in tidemill.windows(…)",
    "Last": "use min or max of a column, or last in tidemill.windows(…)",
    "AnyValue": "use min or max of the column",
    "CollectList": "use collect in tidemill.windows(…); this list has the order of arrival",
    "CollectSet": "use count(distinct …); a set has the order of arrival",
    "ListAgg": "use count, sum, min or max; a list has the order of arrival",
    "MaxBy": "use max of a struct: max(struct(time, value))",
    "MinBy": "use min of a struct: min(struct(time, value))",
    "ApproximatePercentile": "use count, sum, min or max; its sketch depends on the order",
    "Deduplicate": "use tidemill.deduplicate(key=…, within=…)",
    "DeduplicateWithinWatermark": "use tidemill.deduplicate(key=…, within=…)",
    "GlobalLimit": "rows of a stream have no first; filter by value instead",
    "LocalLimit": "rows of a stream have no first; filter by value instead",
    "Sort": "sort when you read the table",
    "Sample": "filter by a hash of the key: pmod(hash(key), 100) < 5",
    "MapInArrow": "use column expressions, a UDF or tidemill.fold(…); a batch depends on the cut",
    "MapInPandas": "use column expressions, a UDF or tidemill.fold(…); a batch depends on the cut",
    "FlatMapGroupsInPandas": "use tidemill.process(…) or tidemill.fold(…)",
    "FlatMapGroupsInArrow": "use tidemill.process(…) or tidemill.fold(…)",
    "FlatMapGroupsInPandasWithState": "use tidemill.process(…)",
    "TransformWithStateInPySpark": "use tidemill.process(…)",
    "PythonUDAF": "use count, sum, min, max or avg",
    "Window": "use groupBy(window(…)) with an aggregate",
    "LogicalRelation": _UNPINNED,
    "DataSourceV2Relation": _UNPINNED,
    "NondeterministicPythonUDF": "make the function depend on its arguments alone",
}

_CLOCK = "use the event time, or the ingest time: sources: {…: {meta: true}} gives _meta"
_CLOCK_TEXT = f"Spark takes this text for the clock when it is cast to a time; {_CLOCK}"
_SESSION = "write the value as a literal: it depends on who runs the pipeline, and where"
_CHANCE = "derive it from the row: hash(key), xxhash64(…)"
_LAYOUT = "depends on how the input was cut; use a column of the row"
_CLOCKS = (
    *("CurrentBatchTimestamp", "CurrentDate", "CurrentTime", "CurrentTimestamp"),
    *("LocalTimestamp", "Now"),
)
_CLOCK_TEXTS = ("Today", "Tomorrow", "Yesterday")
_SESSIONS = (
    *("CurrentCatalog", "CurrentDatabase", "CurrentPath", "CurrentTimeZone", "CurrentUser"),
    *("SessionUser", "SparkVersion"),
)
_LAYOUTS = (
    *("InputFileBlockLength", "InputFileBlockStart", "InputFileName"),
    *("MonotonicallyIncreasingID", "SparkPartitionID"),
)
_REFUSED_EXPRESSIONS = {
    **dict.fromkeys(_CLOCKS, _CLOCK),
    **dict.fromkeys(_CLOCK_TEXTS, _CLOCK_TEXT),
    **dict.fromkeys(_SESSIONS, _SESSION),
    **dict.fromkeys(BY_LOT, _CHANCE),
    **dict.fromkeys(_LAYOUTS, _LAYOUT),
    **dict.fromkeys(
        ("CallMethodViaReflection", "TryReflect", "ScalaUDF"),
        "use Spark's own functions or a deterministic Python UDF",
    ),
    **dict.fromkeys(
        ("Exists", "InSubquery", "LateralSubquery", "ListQuery", "ScalarSubquery"),
        "write it as a join",
    ),
    "NondeterministicPythonUDF": _ADVICE["NondeterministicPythonUDF"],
    "PythonUDTF": "use explode(…) or a UDF that returns an array; its end depends on the cut",
    "AesEncrypt": "give it an iv that is derived from the row; without one Spark draws it by lot",
    "Nondeterministic": "Spark says that an expression may give another value each time",
}
_DEFAULT_ADVICE = "it is not known to give the same rows for every cut of the input"


_READERS = ("csv", "json", "jdbc", "load", "orc", "parquet", "read", "sql", "table", "text")
_CALLS = {
    "data_source_v2_relation": _READERS,
    "deduplicate": ("dropDuplicates", "drop_duplicates"),
    "deduplicate_within_watermark": ("dropDuplicatesWithinWatermark",),
    "flat_map_groups_in_arrow": ("applyInArrow",),
    "flat_map_groups_in_pandas": ("applyInPandas",),
    "flat_map_groups_in_pandas_with_state": ("applyInPandasWithState",),
    "global_limit": ("limit",),
    "list_agg": ("listagg", "string_agg"),
    "local_limit": ("limit",),
    "logical_relation": _READERS,
    "nondeterministic_python_udf": ("asNondeterministic",),
    "sort": ("orderBy", "sort"),
    "transform_with_state_in_py_spark": ("transformWithState", "transformWithStateInPandas"),
    "window": ("over",),
}
"""What is called where something is used whose name in Catalyst is another one."""


def calls_of(name: str) -> tuple[str, ...]:
    """What code may call to use something that is refused: in Spark's two spellings, or SQL."""
    first, *rest = name.split("_")
    return (*_CALLS.get(name, ()), name, first + "".join(part.title() for part in rest))


def find_refusals(usages: Iterable[Usage]) -> dict[str, str]:
    """What a plan uses that is not on the allow-list, as users write it, with an advice."""
    advices = ((usage.spoken_name, _advice_for(usage)) for usage in usages)
    refusals = {name: advice for name, advice in advices if advice is not None}
    if len(refusals) > 1:
        refusals.pop("nondeterministic", None)  # one of the other refusals is the reason for it
    return refusals


def _advice_for(usage: Usage) -> str | None:
    if usage.kind == "expression":
        return _REFUSED_EXPRESSIONS.get(usage.name)
    allowed = NODES if usage.kind == "node" else AGGREGATES
    return None if usage.name in allowed else _ADVICE.get(usage.name, _DEFAULT_ADVICE)


def check_allowed(
    pipeline: str,
    usages: Iterable[Usage],
    allow: Iterable[str],
    find: Callable[[Sequence[str]], str] = lambda calls: "",
) -> list[str]:
    """Refuse what is not allowed; return the names that only ``allow:`` in the YAML permits.

    ``find`` says where the code has one of these calls, ``pipelines.py:12``, or nothing.
    """
    return _check("the pipeline", pipeline, usages, allow, find)


def check_interceptors(
    pipeline: str,
    usages: Mapping[str, Iterable[Usage]],
    allow: Iterable[str],
    find: Callable[[str, Sequence[str]], str] = lambda name, calls: "",
) -> None:
    """Hold what each interceptor adds to the plan to the same list; ``usages`` are by its name.

    ``find`` says where the code of an interceptor has one of these calls.
    """
    allow = list(allow)
    for name, used in usages.items():
        _check(f"the interceptor {name}", pipeline, used, allow, partial(find, name))


def _check(
    who: str,
    pipeline: str,
    usages: Iterable[Usage],
    allow: Iterable[str],
    find: Callable[[Sequence[str]], str],
) -> list[str]:
    accepted = {name.lower().replace("()", "") for name in allow}
    found = find_refusals(usages)
    refused = [name for name in found if name not in accepted]
    if refused:
        names = ", ".join(refused)
        place = find([call for name in refused for call in calls_of(name)])
        raise PlanError(
            f"{who} uses {names}, which can give other rows in a backfill than live",
            where=f"pipeline {pipeline}" + (f" ({place})" if place else ""),
            fix=f"{refused[0]}: {found[refused[0]]}; or accept it: allow: [{names}]",
            refused=refused,
        )
    return list(found)
