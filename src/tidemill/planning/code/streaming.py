"""Say in the user's words why Spark cannot do something with a stream, and what to use instead."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cause:
    """A text that tells Spark's error, the calls that lead to it, what to do instead."""

    told: str
    calls: tuple[str, ...]
    fix: str


ACTION = Cause(
    "must be executed with writeStream.start()",
    (),
    "a pipeline only describes what is done with rows that are still to come: it cannot count(), "
    "collect(), show() or cache() them; return a DataFrame, and count with groupBy(window(…))",
)
CAUSES = (
    Cause(
        "Distinct aggregations are not supported",
        ("count_distinct", "countDistinct", "sum_distinct", "sumDistinct"),
        "use tidemill.unique_counts(…), which is exact, or F.approx_count_distinct(…)",
    ),
    Cause(
        "NON_TIME_WINDOW_NOT_SUPPORTED",
        ("over",),
        "use tidemill.top_n(…) for the first rows of every group, tidemill.deduplicate(…) for one "
        "row of each key, or groupBy(window(…)) with an aggregate",
    ),
    Cause(
        "Sorting is not supported",
        ("orderBy", "sort"),
        "leave the order out and sort when you read the table; tidemill.top_n(…) gives the first "
        "rows of every window",
    ),
)
_OTHER = Cause(
    "",
    (),
    "aggregate over a time window of the event time; joins need a bound in event time",
)


def cause_of(text: str) -> Cause:
    """What an error of Spark's streaming check means."""
    return next((cause for cause in CAUSES if cause.told in text), _OTHER)
