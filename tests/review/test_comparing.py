"""Every planted difference is found and nothing else, whatever the columns, keys and files are."""

import math
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.review.comparing.causes import Evidence
from tidemill.review.comparing.engine import compare_rows
from tidemill.review.comparing.rules import Asked, make_rules

T0 = datetime(2026, 1, 1, tzinfo=UTC)
NESTED = pa.struct([("name", pa.string()), ("list", pa.list_(pa.float64()))])
SCHEMA = pa.schema(
    [
        ("case", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("key", pa.int64()),
        ("word", pa.string()),
        ("near", pa.float64()),
        ("far", pa.float64()),
        ("money", pa.decimal128(12, 2)),
        ("nested", NESTED),
        ("tags", pa.map_(pa.string(), pa.int64())),
        ("raw", pa.binary()),
    ]
)
TOLERANCE = 0.25
FLOATS = st.sampled_from([None, 0.0, -0.0, 1.0, 1.5, math.nan, math.inf, -math.inf])
ROWS = st.fixed_dictionaries(
    {
        "at": st.sampled_from([T0 + timedelta(minutes=n) for n in range(3)]),
        "key": st.sampled_from([None, 1, 2]),
        "word": st.sampled_from([None, "", "a", 'a"\\']),
        "near": st.none() | st.integers(-2, 2).map(lambda n: n / 8) | st.just(math.nan),
        "far": FLOATS,
        "money": st.sampled_from([None, Decimal("0.00"), Decimal("-1.50")]),
        "nested": st.sampled_from(
            [None, {"name": None, "list": None}, {"name": "x", "list": []},
             {"name": "x", "list": [0.0, math.nan]}, {"name": "x", "list": [-0.0, math.nan]},
             {"name": "x", "list": [None]}]
        ),
        "tags": st.sampled_from([None, [], [("a", 1), ("b", None)], [("b", None), ("a", 1)]]),
        "raw": st.sampled_from([None, b"", b"\x00\xff"]),
    }
)  # fmt: skip
KEYS = st.sampled_from([("at", "key"), ("key",), ("word", "far", "nested"), None])


def plain(name, value):
    """A value that equal values share, as the tests see equality."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    if name == "nested" and value is not None:
        found = value["list"]
        return value["name"], None if found is None else tuple(plain("", v) for v in found)
    if name == "tags" and value is not None:
        return tuple(sorted(value, key=repr))
    return value


def twin(row):
    """The same row, told otherwise: zeros with a sign, maps in another order, a float moved."""
    nested = row["nested"]
    if nested is not None and nested["list"] is not None:
        nested = {**nested, "list": [-v if v == 0 else v for v in nested["list"]]}
    tags, near, far = row["tags"], row["near"], row["far"]
    return {
        **row,
        "nested": nested,
        "tags": None if tags is None else tags[::-1],
        "far": -far if far == 0 else far,
        "near": near + TOLERANCE if near is not None and row["key"] == 1 else near,
    }


def is_near(a, b, tolerance):
    if a is None or b is None:
        return a is b
    return plain("", a) == plain("", b) or abs(a - b) <= tolerance


def expected(here, there, key, tolerance):
    """Counted key by key, over all ways to pair the rows of a key."""
    exact = [name for name in SCHEMA.names if not (tolerance is not None and name == "near")]
    keys = exact if key is None else list(key)
    groups = defaultdict(lambda: ([], []))
    for side, rows in enumerate((here, there)):
        for row in rows:
            groups[tuple(plain(n, row[n]) for n in keys)][side].append(row)

    def same(a, b):
        return all(plain(n, a[n]) == plain(n, b[n]) for n in exact) and (
            tolerance is None or is_near(a["near"], b["near"], tolerance)
        )

    counts, columns = Counter(), Counter()
    for ours, theirs in groups.values():
        equal = most_pairs(ours, theirs, same)
        left, right = len(ours) - equal, len(theirs) - equal
        pairs = min(left, right) if key is not None else 0
        counts.update(equal=equal, different=pairs)
        counts.update(only_here=left - pairs, only_there=right - pairs)
        if len(ours) == len(theirs) == pairs == 1:
            a, b = ours[0], theirs[0]
            for name in SCHEMA.names:
                if name == "near" and tolerance is not None:
                    columns[name] += not is_near(a[name], b[name], tolerance)
                else:
                    columns[name] += plain(name, a[name]) != plain(name, b[name])
    is_single = all(max(map(len, sides)) == 1 for sides in groups.values())
    return counts, (+columns if is_single else None)


def most_pairs(ours, theirs, same):
    """As many pairs as there can be: every row looks for one, and may take another's away."""
    taken = {}

    def finds(at, seen):
        for to, other in enumerate(theirs):
            if to not in seen and same(ours[at], other):
                seen.add(to)
                if to not in taken or finds(taken[to], seen):
                    taken[to] = at
                    return True
        return False

    return sum(finds(at, set()) for at in range(len(ours)))


def batches(rows, size):
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    return lambda: iter(table.to_batches(max_chunksize=size))


def compare_tables(here, there, rules):
    """The summary of two tables that are in memory."""
    return compare_rows(here.to_batches, there.to_batches, rules, Evidence())[0]


def compare(here, there, rules, *, held=1_000_000, large=10**9, size=7, folder=None):
    known = Evidence()
    return compare_rows(
        batches(here, size), batches(there, size), rules, known, folder, held=held, large=large
    )[0]


CASES = 5
"""In one comparison: the number of a case is part of every key, so they do not meet."""


@settings(max_examples=1_000 // CASES)
@given(
    cases=st.lists(
        st.tuples(
            st.lists(ROWS, max_size=6), st.lists(ROWS, max_size=3), st.lists(ROWS, max_size=3)
        ),
        min_size=CASES,
        max_size=CASES,
    ),
    key=KEYS,
    tolerance=st.sampled_from([None, 0.0, TOLERANCE]),
    files=st.sampled_from([*[(1_000, 10**9)] * 18, (5, 10**9), (0, 0)]),
)
def test_every_difference_is_found_and_nothing_else(tmp_path_factory, cases, key, tolerance, files):
    here, there = ([], [])
    for number, (common, more, others) in enumerate(cases):
        here += [{**row, "case": number} for row in (*common, *more)]
        there += [{**row, "case": number} for row in (*others, *map(twin, common))]
    key = None if key is None else (*key, "case")
    tolerances = {} if tolerance is None else {"near": tolerance}
    rules = make_rules(SCHEMA, SCHEMA, Asked(key, tolerances), time="at")
    folder = tmp_path_factory.mktemp("compare")
    found = compare(here, there, rules, held=files[0], large=files[1], folder=folder)
    counts, columns = expected(here, there, key, tolerance)
    assert counts == Counter(
        equal=found.equal,
        different=found.different,
        only_here=found.only_here,
        only_there=found.only_there,
    )
    if columns is not None:
        assert columns == {name: each.rows for name, each in found.columns.items()}
    differing = found.different + found.only_here + found.only_there
    assert sum(found.causes.values()) == differing
    assert sum(map(sum, found.bins.values())) == differing
    assert (found.match == 100) == (differing == 0)
    assert not list(folder.iterdir())
