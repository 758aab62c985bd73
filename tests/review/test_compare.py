"""`tidemill compare` over real Iceberg tables: text, JSON, a page, and every refusal. No Spark."""

import json
import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from html.parser import HTMLParser

import pyarrow as pa
import pytest
import yaml

from tests.cli.stage import OUTPUT_SCHEMA
from tests.manifests import change
from tests.review.stage import LIVE, PRODUCTION, RUN, SHADOW, Review, at, row
from tidemill.errors import PlanError, RequestError, RunError, SinkError
from tidemill.iceberg.catalog import open_catalog
from tidemill.review.comparing.canonical import canonical, common_type
from tidemill.review.comparing.rules import Asked, make_rules
from tidemill.review.comparing.summary import Summary, coarsened, match_of
from tidemill.runfolder.compared import read_compared
from tidemill.types import SECOND

ROWS = [row(minutes, key) for minutes in range(0, 60, 10) for key in (1, 2)]
EVIL = "<script>alert('x')</script>&\"[bold]"
THEIRS = [ROWS[0] | {"word": EVIL}, *ROWS[1:5], ROWS[6] | {"key": 9}, *ROWS[7:]]


@pytest.fixture(scope="module")
def review(tmp_path_factory):
    made = Review.make(tmp_path_factory.mktemp("compare"))
    made.write(made.run(RUN, SHADOW), [*ROWS, row(-5), row(24 * 60)])
    made.write(made.run(LIVE, PRODUCTION, ends=False), [*THEIRS, row(-500, 77)])
    made.stage.write("marts.same", ROWS)
    return made


def test_text(review):
    shown = review.cli("compare", RUN)
    lines = shown.out.splitlines()
    assert (shown.code, shown.err) == (0, "")
    assert lines[:5] == [
        "69.230769 % match  pipeline  output",
        f"  here   {SHADOW}  run {RUN}",
        f"  there  {PRODUCTION}",
        "  range  [2026-01-01T00:00Z, 2026-01-02T00:00Z)  by key, at",
        "  rows   9 equal, 1 different, 2 only here, 1 only there",
    ]
    assert f"w ≠ {EVIL}" in shown.out


def test_json_counts_the_range_only(review):
    told = json.loads(review.cli("compare", RUN, "--json").out)
    assert told["rows"] == {"equal": 9, "different": 1, "only_here": 2, "only_there": 1}
    assert told["match"] == 69.230769
    assert told["columns"] == {"word": 1}
    assert told["tables"] == {"here": SHADOW, "there": PRODUCTION}
    assert told["range"] == {"from": "2026-01-01T00:00Z", "to": "2026-01-02T00:00Z"}
    assert sum(told["causes"].values()) == 4
    (sample,) = [each for each in told["samples"] if each["kind"] == "different"]
    assert (sample["key"], sample["here"], sample["there"]) == (
        {"key": 1, "at": "2026-01-01T00:00Z"}, {"word": "w"}, {"word": EVIL}
    )  # fmt: skip
    assert {tuple(each["key"].items()): each["rows"] for each in told["worst_keys"]} == {
        (("key", 1),): 2, (("key", 2),): 1, (("key", 9),): 1
    }  # fmt: skip


def test_what_was_found_is_kept_for_publishing(review):
    review.compare()
    folder = review.project._folder(RUN)
    (kept,) = read_compared(folder)
    table = open_catalog(review.project.loaded).load_table(PRODUCTION)
    assert (kept.output, kept.place, kept.equal, kept.match) == ("output", PRODUCTION, 9, 69.230769)
    assert kept.snapshot == table.metadata.current_snapshot_id != kept.shadow
    assert kept.span == folder.read_manifest().times.output
    (folder.path / "compared.json").write_text("{")
    assert read_compared(folder) == ()
    review.compare(with_="marts.same")  # nobody has looked at production
    assert read_compared(folder) == ()


def test_several_lines_are_one_in_python(review):
    found = review.project.review.compare(RUN)
    told = f"<Comparison pipeline: run {RUN}; match 69.230769 %; equal 9; different 1; "
    assert repr(found) == told + "only here 2; only there 1>"
    assert "69.230769 %" in found._repr_html_()


def test_with_a_table_and_with_a_run(review):
    assert review.compare(with_="marts.same")["match"] == 100
    assert review.compare(with_=LIVE)["rows"] == review.compare()["rows"]
    told = review.compare(with_="marts.same", key=[])
    assert told["rows"]["equal"] == 12 and told["key"] is None
    assert review.cli("compare", RUN, "--with", "marts.same").out.startswith("100.000000 % match")


def test_whole_rows_without_a_key(review):
    told = review.compare(key=[])
    assert told["rows"] == {"equal": 9, "different": 0, "only_here": 3, "only_there": 2}
    assert told["columns"] == {} and told["worst_keys"] == []
    assert "whole rows" in review.cli("compare", RUN, "--key", "").out


def test_min_match_is_the_exit_code(review):
    assert review.cli("compare", RUN, "--min-match", "69.2").code == 0
    few = review.cli("compare", RUN, "--min-match", "99.9", "--json")
    assert few.code == 1 and "69.230769 % of the rows match, less than 99.9 %" in few.err
    assert json.loads(few.out)["match"] == 69.230769


class Page(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self):
        super().__init__()
        self.tags, self.links, self.texts, self.open = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [v for k, v in attributes if k in ("src", "href") or k.startswith("on")]
        if tag not in ("meta", "rect", "line"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("rect", "line"):
            assert self.open.pop() == tag

    def handle_data(self, text):
        self.texts.append(text)


def test_a_page_that_needs_nothing_else(review, tmp_path):
    shown = review.cli("compare", RUN, "--html", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text("utf-8")
    page = Page()
    page.feed(text)
    assert shown.code == 0 and not page.open
    assert not page.links and "script" not in page.tags and page.tags.count("svg") == 3
    assert EVIL in "".join(page.texts) and "69.230769 %" in page.texts


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"ignore": ["at", "key", "word"], "key": []}, PlanError, "no column in common"),
        ({"ignore": ["wrd"]}, PlanError, "no output has a column 'wrd'"),
        ({"key": ["wrd"]}, PlanError, "no column 'wrd'"),
        ({"ignore": ["key"]}, PlanError, "the key 'key' is ignored"),
        ({"tolerance": {"word": 1.0}}, PlanError, "and no number"),
        ({"tolerance": {"key": 1.0}}, PlanError, "part of the key"),
        ({"tolerance": {"key": -1.0}, "key": ["at"]}, PlanError, "not 0 or more"),
        ({"outputs": ["outpt"]}, PlanError, "no output 'outpt'"),
        ({"with_": "marts.gone"}, SinkError, "does not exist"),
        ({"with_": "gone"}, RunError, "no run or table 'gone'"),
    ],
)
def test_refusals(review, options, error, told):
    with pytest.raises(error, match=told) as raised:
        review.compare(**options)
    assert raised.value.fix or "not 0 or more" in told


def test_mistakes_on_the_command_line_have_no_trace(review):
    for arguments, told in (
        (("compare", "nobody"), "there is no run 'nobody'"),
        (("compare", RUN, "--tolerance", "word"), "is not COLUMN=NUMBER"),
        (("compare", RUN, "--with", "marts.gone"), "does not exist"),
        (("compare", LIVE), "writes production's own table"),
    ):
        found = review.cli(*arguments)
        assert found.code in (1, 2) and told in found.err and "Traceback" not in found.err


def test_tables_that_are_gone(tmp_path):
    review = Review.make(tmp_path)
    manifest = review.run(RUN, SHADOW)
    with pytest.raises(SinkError, match=f"the run's table {SHADOW} is gone"):
        review.compare()
    review.write(manifest, ROWS)
    with pytest.raises(SinkError, match="there is nothing to compare with"):
        review.compare()
    with pytest.raises(RequestError):
        review.project.review.compare("nobody")


def test_columns_of_one_side_other_types_and_a_lacking_time(tmp_path):
    review = Review.make(tmp_path)
    review.write(review.run(RUN, SHADOW), ROWS)
    fields = [("at", pa.timestamp("us", "UTC")), ("key", pa.int32()), ("more", pa.int64())]
    theirs = [{**each, "more": 1} for each in ROWS]
    other = review.run("other", "marts.other")
    review.write(other, theirs, schema=pa.schema(fields))
    told = review.compare(with_="marts.other")
    assert told["match"] == 100
    assert told["columns_apart"] == {"here": ["word"], "there": ["more"]}
    assert [note for note in told["notes"] if "were not compared: word" in note]
    review.write(other, theirs, schema=pa.schema(fields[1:]), table="marts.timeless")
    with pytest.raises(PlanError, match="no column 'at', which is the sink's time"):
        review.compare(with_="marts.timeless")
    review.write(other, [{"x": 1}], schema=pa.schema([("x", pa.int64())]), table="marts.foreign")
    with pytest.raises(PlanError, match="no column in common"):
        review.compare(with_="marts.foreign", key=[])
    text = pa.schema([fields[0], ("key", pa.string())])
    review.write(other, [{"at": at(0), "key": "1"}], schema=text, table="marts.text")
    with pytest.raises(PlanError, match="which cannot be compared"):
        review.compare(with_="marts.text")


def test_empty_sides_match_and_half_a_range_is_told(tmp_path):
    review = Review.make(tmp_path)
    ours, live = review.run(RUN, SHADOW), review.run(LIVE, PRODUCTION, ends=False)
    review.write(ours, [])
    review.write(live, [])
    told = review.compare()
    assert (told["match"], sum(told["rows"].values())) == (100.0, 0)
    assert "100.000000 % match" in review.cli("compare", RUN, "--min-match", "100").out
    review.write(ours, ROWS, batch=1)
    told = review.compare()
    assert (told["match"], told["rows"]["only_here"]) == (0.0, 12)
    assert "there are no rows there in this range at all" in told["notes"]
    review.write(live, ROWS[6:], batch=1)
    assert any(
        "the first row of the range is of 2026-01-01T00:30Z" in n for n in review.compare()["notes"]
    )


def test_a_topic_is_not_read_back(tmp_path):
    review = Review.make(tmp_path)
    manifest = review.run(RUN, SHADOW)
    topic = manifest.outputs.sinks["output"]
    folder = review.project._folder(RUN)
    sinks = {"output": replace(topic, kind="kafka", place="kafka:plays")}
    (folder.path / "manifest.json").write_text(change(manifest, sinks=sinks).to_json())
    found = review.cli("compare", RUN)
    assert found.code == 1 and "kafka:plays are not read back" in found.err


def test_an_unfinished_run_says_so(review):
    review.project.registry.set_state(RUN, "failed")
    assert "the run is failed, not finished" in review.cli("compare", RUN).out
    review.project.registry.set_state(RUN, "finished")


def test_a_pipeline_that_has_left_the_yaml(tmp_path):
    review = Review.make(tmp_path)
    review.write(review.run(RUN, SHADOW), ROWS)
    path = review.project.loaded.path
    text = yaml.safe_load(path.read_text())
    text["pipelines"] = {"another": text["pipelines"]["pipeline"]}
    path.write_text(yaml.safe_dump(text))
    found = review.cli("compare", RUN)
    assert found.code == 2 and "fix: name the table: --with TABLE" in found.err


def test_match_never_rounds_up():
    assert match_of(10**12 - 1, 10**12) == 99.999999
    assert f"{match_of(10**12 - 1, 10**12):.6f}" == "99.999999"
    assert (match_of(0, 0), match_of(3, 3), match_of(0, 1)) == (100, 100, 0)


def test_types_that_lose_nothing_are_compared():
    double, decimal = pa.float64(), pa.decimal128
    assert common_type(pa.int32(), pa.int64()) == pa.int64()
    assert common_type(pa.float32(), double) == double
    assert common_type(pa.int32(), double) == double
    assert common_type(pa.int64(), double) is None  # 2**53 + 1
    assert common_type(decimal(10, 2), decimal(12, 4)) == decimal(38, 4)
    assert common_type(decimal(10, 2), pa.int64()) == decimal(38, 2)
    assert common_type(decimal(38, 30), pa.int64()) is None
    assert common_type(pa.timestamp("us"), pa.timestamp("us", "UTC")) is None
    assert common_type(pa.timestamp("ms", "UTC"), pa.timestamp("us", "Europe/Paris")) == (
        pa.timestamp("us", "UTC")
    )
    assert common_type(pa.string(), pa.int64()) is None
    assert common_type(pa.list_(pa.int32()), pa.list_(pa.int64())) == pa.large_string()


def test_structs_are_equal_whatever_the_order_of_their_fields():
    fields = [("a", pa.int64()), ("b", pa.struct([("x", pa.string()), ("y", pa.int64())]))]
    other = [("b", pa.struct([("y", pa.int64()), ("x", pa.string())])), ("a", pa.int64())]
    rows = [{"a": 1, "b": {"x": "w", "y": None}}, {"a": None, "b": None}, None]
    one, two = (pa.array(rows, pa.struct(each)) for each in (fields, other))
    kind = common_type(one.type, two.type)
    assert kind is not None and canonical(one, kind).equals(canonical(two, kind))


def test_by_how_much(tmp_path):
    schema = pa.schema([("key", pa.int64()), ("a", pa.float64()), ("b", pa.decimal128(9, 2))])
    rules = make_rules(schema, schema, Asked(("key",), {"a": 0.1}))
    from tests.review.test_comparing import compare_tables

    ours = pa.table(
        {"key": [1, 2, 3, 4], "a": [1.0, 2.0, math.nan, 1.0], "b": [1.0, 1.0, 1.0, None]}
    )
    theirs = pa.table(
        {"key": [1, 2, 3, 4], "a": [1.05, 5.0, 1.0, math.inf], "b": [1.0, 3.0, 1.0, 1.0]}
    )
    found = compare_tables(ours.cast(schema), theirs.cast(schema), rules)
    assert (found.equal, found.different) == (1, 3)
    a, b = found.columns["a"], found.columns["b"]
    assert (a.rows, a.largest, a.mean) == (3, 3.0, 3.0)
    assert (b.rows, b.largest, b.mean) == (2, 2.0, 2.0)


BIG = Decimal("9" * 36 + ".99")


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize(
    ("kind", "sides", "tolerance", "is_near"),
    [
        (pa.int64(), (2**60, 2**60 + 1), 0, False),
        (pa.int64(), (2**60, 2**60 + 1), 1, True),
        (pa.int64(), (2**60, 2**60 + 129), 129, True),
        (pa.int64(), (-(2**63), 2**63 - 1), 1e18, False),
        (pa.int64(), (-(2**63), 2**63 - 1), 1e300, True),
        (pa.int64(), (1, 3), 1.9, False),
        (pa.decimal128(38, 2), (Decimal(10**20), Decimal(10**20) + Decimal("0.01")), 0.001, False),
        (pa.decimal128(38, 2), (Decimal(10**20), Decimal(10**20) + Decimal("0.01")), 0.01, True),
        (pa.decimal128(9, 2), (Decimal("1.01"), Decimal("1.02")), 0.01, True),
        (pa.decimal128(38, 2), (BIG, BIG.copy_negate()), 1, False),
        (pa.decimal128(38, 2), (BIG, BIG.copy_negate()), 1e37, True),
        (pa.decimal128(38, 38), (Decimal("0." + "9" * 38), Decimal("-0." + "9" * 38)), 1.5, False),
        (pa.float64(), (1.0, 1.25), 0.25, True),
        (pa.float64(), (math.inf, -math.inf), 1e300, False),
    ],
)
def test_a_tolerance_holds_to_the_last_digit(kind, sides, tolerance, is_near, copies):
    """A double has 15 digits: numbers with more of them must not become one."""
    from tests.review.test_comparing import compare_tables

    schema = pa.schema([("key", pa.int64()), ("a", kind)])
    rules = make_rules(schema, schema, Asked(("key",), {"a": tolerance}))
    ours, theirs = (
        pa.table({"key": [1] * copies, "a": pa.array([value] * copies, kind)}) for value in sides
    )
    found = compare_tables(ours, theirs, rules)
    assert (found.equal, found.different) == ((copies, 0) if is_near else (0, copies))
    if not is_near and math.isfinite(sides[0]):
        apart = abs(Fraction(sides[0]) - Fraction(sides[1]))
        assert found.columns["a"].largest == pytest.approx(float(apart), rel=1e-12)


def test_json_has_no_infinity_where_distances_add_up_beyond_a_double(tmp_path):
    review = Review.make(tmp_path)
    schema = pa.schema([*OUTPUT_SCHEMA, ("much", pa.float64())])
    for run, value in ((review.run(RUN, SHADOW), 1.7e308), (review.run(LIVE, PRODUCTION), 0.0)):
        review.write(run, [row(n) | {"much": value} for n in range(2)], schema=schema)
    told = json.loads(review.cli("compare", RUN, "--json").out, parse_constant=pytest.fail)
    assert told["differences"]["much"] == {"rows": 2, "largest": 1.7e308, "mean": "inf"}


def test_a_time_without_timestamps_is_refused_also_if_it_is_ignored():
    here = pa.schema([("at", pa.timestamp("us", "UTC")), ("key", pa.int64())])
    for kind in (pa.string(), pa.int64(), pa.date32()):
        there = pa.schema([("at", kind), ("key", pa.int64())])
        with pytest.raises(PlanError, match="has no timestamps in one of the tables"):
            make_rules(here, there, Asked(("key",), ignore=("at",)), time="at")


def test_sums_of_summaries_and_their_bins():
    minute = {n * 60 * SECOND: (1, 0, 0) for n in range(200)}
    width, bins = coarsened(minute, SECOND, 60)
    assert (width, len(bins), sum(map(sum, bins.values()))) == (600 * SECOND, 20, 200)
    both = Summary(1, 2, bins=minute) + Summary(3, 4, bins=bins, width=width)
    assert (both.equal, both.different, both.width) == (4, 6, width)
    assert sum(map(sum, both.bins.values())) == 400
