"""An exception of a user's function is told with its place and the values it was called with."""

import traceback
from pathlib import Path

from tidemill.runtime.spark.user_errors import find_user_error, note_arguments

CODE = """\
def price(text, rate=1.0, *, rows=()):
    return float(text) * rate


def outer(row):
    return price(row, rows=[1, 2])
"""


def raised(tmp_path: Path, value: object, noted: bool = True) -> str:
    """The text of a worker's traceback, as Spark hands it on."""
    file = tmp_path / "pipelines.py"
    file.write_text(CODE, "utf-8")
    names: dict[str, object] = {}
    exec(compile(CODE, str(file), "exec"), names)
    try:
        names["outer"](value)  # type: ignore[operator]
    except Exception as error:
        if noted:
            note_arguments(error)
        return f"Job aborted: PythonException:\n{traceback.format_exc()}\n\tat org.apache.Spark"
    raise AssertionError


def test_the_innermost_line_of_the_project_and_its_arguments(tmp_path):
    found = find_user_error(raised(tmp_path, "x"), tmp_path)
    assert found is not None
    assert (found.function, found.file.name, found.line) == ("price()", "pipelines.py", 2)
    assert found.raised == "ValueError: could not convert string to float: 'x'"
    assert found.values == "text='x', rate=1.0, rows=<list>"


def test_long_values_are_cut(tmp_path):
    found = find_user_error(raised(tmp_path, "y" * 500), tmp_path)
    assert found is not None
    assert found.values == f"text='{'y' * 59}…, rate=1.0, rows=<list>"


def test_without_the_note_the_traceback_tells(tmp_path):
    found = find_user_error(raised(tmp_path, "x", noted=False), tmp_path)
    assert found is not None
    assert (found.function, found.line, found.values) == ("price()", 2, "")


def test_what_is_not_in_the_project_is_not_the_users(tmp_path):
    assert find_user_error(raised(tmp_path, "x"), tmp_path / "elsewhere") is None
    assert find_user_error("java.lang.OutOfMemoryError: heap", tmp_path) is None
