"""What the names of columns tell: which time is which, what to group by, what to add up."""

from __future__ import annotations

import re
from collections.abc import Mapping

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def _table(**weights: str) -> Mapping[str, int]:
    """Words by their weight: ``_table(w3="one two")``."""
    return {
        word: int(weight[1:]) * (-1 if weight[0] == "m" else 1)
        for weight, words in weights.items()
        for word in words.split()
    }


EVENT = _table(
    w5="event occurred happened",
    w4="pickup measured observed sampled request requested clicked played viewed sent captured",
    w3="start started begin began departure reading client order ordered created",
    w2="ts time timestamp datetime tstamp",
    w1="at date when",
    m4="updated modified changed deleted removed expires expired expiry expiration valid birth "
    "birthday due until end ended dropoff finished closed stop stopped last next arrival",
)
INGEST = _table(
    w5="ingest ingested ingestion received receipt",
    w4="loaded landed inserted appended kafka broker collector etl uploaded extracted synced",
    w3="load processed processing written stored collected",
    w2="created server log logged recorded saved published",
)
SURELY_INGEST = 3
"""From this weight on the name alone is enough; below it the delays must fit, too."""
KEY = _table(
    w4="device sensor station product show store service customer account tenant shop",
    w3="id vendor country region city host path url page status type category channel platform "
    "location name kind",
    w2="code zone level user method event",
    m9="dt date day hour hr year month week minute window rows",
    m4="uuid guid hash token session trip request message row comment flag",
)
MEASURE = _table(
    w5="amount price value bytes revenue temperature",
    w4="total fare cost size duration seconds quantity latency",
    w3="humidity distance pressure speed score ms millis length weight power volume",
    w2="count",
    m9="id code status zip year month day hour lat lon lng latitude longitude version port flag "
    "type partition offset number index level zone key",
)


def words_of(name: str) -> list[str]:
    """The words of a name: ``pickupDatetime_2`` has three."""
    return [word.lower() for word in _WORD.findall(name)]


def weigh(name: str, table: Mapping[str, int]) -> int:
    """How much a name speaks for a meaning: its strongest word, and against it all of them."""
    found = [table.get(word, 0) for word in words_of(name)]
    return max([0, *found]) + sum(weight for weight in found if weight < 0)
