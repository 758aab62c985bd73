"""Find texts that Spark replaces by the current time: ``timestamp'now'``, ``to_date('today')``.

Spark 4.3 knows five special values of dates and timestamps: epoch, now, today, tomorrow and
yesterday. The parser replaces them in a typed literal, and the first rule of the optimiser replaces
them in a constant text that is cast. Texts in a column are never replaced: Spark reads them as
null, or fails under ANSI.
"""

import re
from collections.abc import Iterator
from itertools import zip_longest

from tidemill.planning.code.tree import Tree

SPECIAL_TIMES = ("now", "today", "tomorrow", "yesterday")
"""Every special value that depends on the clock; ``epoch`` does not."""

_TYPED = re.compile(
    r"\b(?:date|timestamp|timestamp_ltz|timestamp_ntz)\s*"
    rf"r?(['\"])\s*({'|'.join(SPECIAL_TIMES)})\s*\1",
    re.IGNORECASE,
)


def typed_specials(sql: str) -> Iterator[str]:
    """The special values among the typed literals of an SQL text, such as ``date'today'``."""
    return (found[2].lower() for found in _TYPED.finditer(sql))


def cast_specials(before: Tree, after: Tree) -> Iterator[str]:
    """The special values among a plan's casts, found by comparing it before and after the rule."""
    if before.kind == "Cast" and after.kind == "Literal":
        if not str(after.fields.get("value")).startswith("1970-01-01"):
            text = str(before.children[0].fields.get("value")).strip().lower()
            yield text if text in SPECIAL_TIMES else SPECIAL_TIMES[0]
        return
    for old, new in zip_longest(
        (*before.expressions(), *before.children), (*after.expressions(), *after.children)
    ):
        if old is not None and new is not None:
            yield from cast_specials(old, new)
