import os
from dataclasses import replace

import pytest

from tests.planning.code.plans import facts_of
from tidemill.runtime.code.cache import KnownCode, digest, forget, recall, remember
from tidemill.runtime.code.lookout import Looked


def known(name="outputs"):
    return KnownCode(("plays",), "abc", facts_of(name), Looked("salt"))


def test_what_is_remembered_is_recalled(tmp_path):
    assert recall(tmp_path, "f1") is None
    remember(tmp_path, "f1", known())
    remember(tmp_path, "f2", known("tumbling"))
    assert recall(tmp_path, "f1") == known()
    assert recall(tmp_path, "f2") == known("tumbling")
    assert recall(tmp_path, "f3") is None
    forget(tmp_path, "f1")
    forget(tmp_path, "f1")
    assert recall(tmp_path, "f1") is None
    assert recall(tmp_path, "f2") is not None


def test_what_looked_at_something_that_is_another_now_is_unknown(tmp_path):
    looked = Looked("salt", files={str(tmp_path / "size.json"): None})
    remember(tmp_path, "f1", replace(known(), looked=looked))
    assert recall(tmp_path, "f1") is not None
    (tmp_path / "size.json").write_text("{}")
    assert recall(tmp_path, "f1") is None


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"looked": 1}', '{"streams": [], "columns": ""}']
)
def test_a_damaged_entry_counts_as_unknown(tmp_path, content):
    remember(tmp_path, "f1", known())
    (tmp_path / "analysis" / "f1.json").write_text(content)
    assert recall(tmp_path, "f1") is None
    remember(tmp_path, "f1", known())
    assert recall(tmp_path, "f1") == known()


def test_the_oldest_are_forgotten(tmp_path):
    remember(tmp_path, "first", known())
    entry = tmp_path / "analysis" / "first.json"
    for number in range(199):
        (tmp_path / "analysis" / f"{number}.json").write_bytes(entry.read_bytes())
    os.utime(entry, (0, 0))
    remember(tmp_path, "last", known())
    assert len(list((tmp_path / "analysis").glob("*.json"))) == 200
    assert recall(tmp_path, "first") is None
    assert recall(tmp_path, "last") is not None


def test_other_columns_have_another_digest():
    one = {"plays": {"a": "long", "b": "int"}, "clicks": {"b": "string"}}
    assert digest(one) == digest(dict(reversed(one.items())))
    changed = [
        {**one, "plays": {"a": "int", "b": "int"}},
        {**one, "plays": {"c": "long", "b": "int"}},
        {**one, "plays": {"b": "int", "a": "long"}},
        {"plays": one["clicks"], "clicks": one["plays"]},
        {"plays": one["plays"]},
    ]
    assert len({digest(columns) for columns in [one, *changed]}) == 6
