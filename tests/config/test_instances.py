"""The section `instances:` of a pipeline, and how mistakes in it are told."""

from datetime import timedelta

import pytest

from tests.config.test_loader import GOOD, load, refusal

INSTANCES = GOOD.replace(
    "    sources:\n",
    "    instances: {table: ops.offers, id: offer, from: since, to: until, gather: 30 s}\n"
    "    sources:\n",
)


def test_instances_are_a_table_with_three_columns(tmp_path):
    found = load(tmp_path, INSTANCES).config.pipelines["shows"].instances
    assert (found.table, found.id, found.from_, found.to) == (
        "ops.offers",
        "offer",
        "since",
        "until",
    )
    assert (found.gather, found.rate) == (timedelta(seconds=30), None)
    rate = load(tmp_path, INSTANCES.replace("gather: 30 s", "yield: 20000")).config
    assert rate.pipelines["shows"].instances.rate == 20_000
    assert load(tmp_path, GOOD).config.pipelines["shows"].instances is None


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("table: ops.offers", "pipelines.shows.instances): the key 'table' is missing"),
        ("from: since", "the key 'from' is missing"),
        ("id: offer", "the key 'id' is missing"),
        ("until=since", "id, from and to are three columns, found offer, since, since"),
        ("ops.offers=offers", "'offers' has no namespace\n  fix: write namespace.table"),
        ("gather: 30 s=gathr: 30 s", "unknown key 'gathr'\n  fix: did you mean 'gather'?"),
        ("gather: 30 s=topic: offers", "unknown key 'topic'"),
        ("gather: 30 s=yield: 50%", "'50%' is no number of rows per second, 20000"),
        ("gather: 30 s=yield: 0", "0 is no number of rows per second"),
        ("gather: 30 s=yield: true", "True is no number of rows per second"),
        ("entry: shows:shows=sql: shows.sql", "a pipeline with instances: has entry:"),
    ],
)
def test_wrong_instances_are_refused_by_name(tmp_path, written, words):
    old, equals, new = written.partition("=")
    text = INSTANCES.replace(old, new) if equals else INSTANCES.replace(f"{old}, ", "")
    assert words in refusal(tmp_path, text).text()
