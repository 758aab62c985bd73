"""Every example of docs/operators.md runs, and gives what the page says."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import tidemill
from tidemill.testing import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
PAGE = (Path(__file__).parents[2] / "docs" / "operators.md").read_text("utf-8")
SECTIONS = {
    text.splitlines()[0]: text for text in PAGE.split("\n## ")[1:] if "```text result" in text
}
OPERATORS = (
    *("attribute", "deduplicate", "fold", "process", "sessions", "top_n"),
    *("udf", "unique_counts", "windows"),
)


def value(text: str) -> Any:
    if re.fullmatch(r"\d\d:\d\d", text):
        return datetime.fromisoformat(f"2026-01-01T{text}:00").replace(tzinfo=UTC)
    return int(text) if text.isdecimal() else text or None


def table(text: str) -> list[dict[str, Any]]:
    """Rows of a picture: columns between bars."""
    head, *lines = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
    return [dict(zip(head, map(value, line), strict=True)) for line in lines]


def test_every_operator_has_an_example() -> None:
    assert set(SECTIONS) == set(OPERATORS)


@pytest.mark.parametrize("name", SECTIONS)
def test_the_example_gives_what_the_page_says(spark: "SparkSession", name: str) -> None:
    text = SECTIONS[name]
    tables = dict(re.findall(r"```text (\w+)\n(.*?)```", text, re.DOTALL))
    expected = table(tables.pop("result"))
    scope: dict[str, Any] = {each: getattr(tidemill, each) for each in OPERATORS}
    for each, rows in tables.items():
        frame = spark.createDataFrame(pa.Table.from_pylist(table(rows)))
        scope[each] = frame.withMetadata("at", {"spark.watermarkDelayMs": 0})
    exec(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1], scope)  # type: ignore[index]
    found = [row.asDict() for row in scope["result"].collect()]
    for row in found:
        for column, each in row.items():
            if isinstance(each, datetime):
                row[column] = each.replace(tzinfo=UTC) if each.tzinfo is None else each
    assert_same_rows(found, expected)
