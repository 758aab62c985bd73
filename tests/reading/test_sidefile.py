from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.errors import RunError
from tidemill.reading.sidefile import (
    Counts,
    read_side_files,
    remove_side_files,
    side_name,
    write_side_file,
)
from tidemill.rows.verdict import SIDE_SCHEMA
from tidemill.runfolder.folder import RunFolder

COUNTS = Counts(on_time=5, late=2, dead=1, suppressed=3, positions={"0": (1, 8)})


def uri(folder: Path) -> str:
    return f"file://{folder}"


def rows(*numbers):
    values = [{"source": "plays", "reason": "late", "offset": number} for number in numbers]
    return pa.RecordBatch.from_pylist(values, schema=SIDE_SCHEMA)


def files_in(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_the_name_says_source_slice_and_task():
    assert side_name("plays", 1_000, 2_000, 7) == "plays/1000-2000/00007.arrow"


def test_what_is_written_is_read(tmp_path):
    write_side_file(uri(tmp_path), "plays/0-1/00000.arrow", [rows(1, 2), rows(), rows(3)], COUNTS)
    counts, table = read_side_files(uri(tmp_path), ["plays/0-1/00000.arrow"])
    assert counts == COUNTS
    assert table.schema == SIDE_SCHEMA
    assert table.column("offset").to_pylist() == [1, 2, 3]


def test_a_task_without_such_rows_still_leaves_its_file(tmp_path):
    write_side_file(uri(tmp_path), side_name("plays", 0, 1, 0), [], Counts(on_time=9))
    counts, table = read_side_files(uri(tmp_path), [side_name("plays", 0, 1, 0)])
    assert counts == Counts(on_time=9)
    assert len(table) == 0
    assert table.schema == SIDE_SCHEMA


def test_written_again_it_has_the_same_bytes(tmp_path):
    path = tmp_path / "plays/0-1/00000.arrow"
    contents = set()
    for _ in range(3):
        write_side_file(uri(tmp_path), "plays/0-1/00000.arrow", [rows(1, 2)], COUNTS)
        contents.add(path.read_bytes())
    assert len(contents) == 1
    assert files_in(tmp_path) == ["plays/0-1/00000.arrow"]


def test_many_writers_of_one_file_leave_one_whole_file(tmp_path):
    """A stream used twice, speculative tasks, a retry: all write the same name."""
    name = side_name("plays", 0, 1, 0)

    def write(_):
        write_side_file(uri(tmp_path), name, [rows(*range(500))], COUNTS)
        return read_side_files(uri(tmp_path), [name])

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(write, range(40)))
    assert all(counts == COUNTS and len(table) == 500 for counts, table in found)
    assert files_in(tmp_path) == [name]


def test_exactly_the_named_files_are_read(tmp_path):
    for index in range(3):
        write_side_file(
            uri(tmp_path), side_name("plays", 0, 1, index), [rows(index)], Counts(late=1)
        )
    (tmp_path / "plays/0-1/00009.arrow.0123.tmp").write_bytes(b"half a file")
    names = [side_name("plays", 0, 1, index) for index in (2, 0)]
    counts, table = read_side_files(uri(tmp_path), names)
    assert counts == Counts(late=2)
    assert table.column("offset").to_pylist() == [2, 0]


def test_no_name_no_rows(tmp_path):
    counts, table = read_side_files(uri(tmp_path), [])
    assert counts == Counts()
    assert len(table) == 0


@pytest.mark.parametrize("content", [None, b"", b"ARROW1 but not really"])
def test_a_missing_or_damaged_file_is_named(tmp_path, content):
    name = side_name("plays", 0, 1, 4)
    if content is not None:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(content)
    with pytest.raises(RunError, match=f"the side file {name} is missing or damaged") as raised:
        read_side_files(uri(tmp_path), [name])
    assert "resume" in raised.value.fix


def test_only_the_slice_that_is_done_is_removed(tmp_path):
    for start in (0, 1):
        write_side_file(uri(tmp_path), side_name("plays", start, start + 1, 0), [], Counts())
    remove_side_files(uri(tmp_path), "plays", 0, 1)
    remove_side_files(uri(tmp_path), "plays", 0, 1)
    assert files_in(tmp_path) == [side_name("plays", 1, 2, 0)]


@pytest.mark.parametrize("folder", ["my project", "50%", "a#b"])
def test_any_folder_will_do(tmp_path, folder):
    side = RunFolder(tmp_path / folder).side
    write_side_file(side, side_name("plays", 0, 1, 0), [rows(1)], COUNTS)
    assert (tmp_path / folder / "side/plays/0-1/00000.arrow").exists()
    assert read_side_files(side, [side_name("plays", 0, 1, 0)])[0] == COUNTS


NUMBERS = st.integers(0, 10**9)
POSITIONS = st.dictionaries(
    st.sampled_from("012"), st.tuples(NUMBERS, NUMBERS).map(lambda pair: (min(pair), max(pair)))
)
ALL_COUNTS = st.builds(Counts, NUMBERS, NUMBERS, NUMBERS, NUMBERS, POSITIONS)


@given(ALL_COUNTS, ALL_COUNTS, ALL_COUNTS)
def test_counts_add_up_in_any_order(one, two, three):
    assert one + Counts() == Counts() + one == one
    assert one + two == two + one
    assert (one + two) + three == one + (two + three)
    assert (one + two).read == one.read + two.read
    assert one.read == one.on_time + one.late + one.dead
