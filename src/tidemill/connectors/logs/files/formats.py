"""What is in a file of a feed, row by row: Parquet, CSV and JSON lines, in the declared columns.

The verdict of a row depends on the row alone, and that of a file on the file alone. Rows that
cannot be decoded carry their text and the reason; a file that cannot be read at all is an
:class:`UnreadableFile`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from tidemill.connectors.logs.files.home import FeedPin
from tidemill.planning.manifest import SourcePin
from tidemill.records.ddl import type_text
from tidemill.records.decoded import NOTE_COLUMNS, UnreadableFile
from tidemill.records.decoding import Format, arrow_schema, decode
from tidemill.rows.columns import RAW, REASON, spark_type
from tidemill.rows.verdict import utc_time

_ENDINGS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_PACKED = (".gz", ".bz2", ".zst", ".lz4")
_BLOCK = 4_000_000
_LINES = 20_000
_BOM = b"\xef\xbb\xbf"


def format_of_file(path: str, given: str | None) -> str:
    """The format of a file: the feed's, or what its name says."""
    if given is not None:
        return given
    name = path.lower()
    for ending in _PACKED:
        name = name.removesuffix(ending)
    for ending, kind in _ENDINGS.items():
        if name.endswith(ending):
            return kind
    raise UnreadableFile(
        f"the file's name does not say its format: it ends with none of {', '.join(_ENDINGS)}"
    )


@dataclass(frozen=True)
class Columns:
    """The declared columns of a feed, and those that every file must have."""

    form: Format
    required: tuple[str, ...]

    @classmethod
    def of(cls, pin: SourcePin) -> Columns:
        """The columns of a pinned feed."""
        assert pin.live is not None
        own = FeedPin.of(pin.live).ingest_time or pin.times.event_time
        return cls(Format(**pin.live.format), tuple(dict.fromkeys((pin.times.event_time, own))))

    @property
    def schema(self) -> pa.Schema:
        """The declared columns as Arrow has them."""
        return arrow_schema(self.form)

    @property
    def zone(self) -> str:
        """The zone of times that carry none."""
        return self.form.zone

    @property
    def own(self) -> str:
        """The column with a row's own time, see ``planning.feed``."""
        return self.required[-1]

    def own_times(self, batch: pa.RecordBatch) -> pa.Array:
        """The rows' own times in microseconds."""
        return utc_time(batch.column(self.own), self.zone).cast(pa.int64())

    def newest_own(self, batch: pa.RecordBatch, limit: int) -> int | None:
        """The newest own time, up to a limit, among rows that can be decoded."""
        own = self.own_times(batch)
        usable = pc.and_(pc.is_null(batch.column(REASON)), pc.less_equal(own, limit))
        found: int | None = pc.max(own.filter(pc.fill_null(usable, False))).as_py()
        return found


def read_rows(
    filesystem: fs.FileSystem, path: str, kind: str, columns: Columns, wanted: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Batches with the wanted columns, ``_raw`` and ``_reason``, in the file's order.

    Raises :class:`UnreadableFile` for a file that is not what it should be, and ``OSError`` or
    ``ArrowInvalid`` where only the bytes can tell whether the storage or the file is to blame.
    """
    if kind == "parquet":
        yield from _parquet(filesystem, path, columns, wanted)
        return
    lines = _lines(filesystem, path)
    if kind == "json":
        batches = _json(lines, columns.form)
    else:
        from tidemill.records.csv_decoding import decode_csv

        batches = decode_csv(lines, columns.schema, columns.form.zone, columns.required)
    for batch in batches:
        yield batch.select([*wanted, RAW, REASON])


def _lines(filesystem: fs.FileSystem, path: str) -> Iterator[bytes]:
    """The file's lines with their ends; unpacked, if the name says that it is packed."""
    rest, is_first = b"", True
    with filesystem.open_input_stream(path, compression="detect") as stream:
        while block := stream.read(_BLOCK):
            if is_first:
                block, is_first = block.removeprefix(_BOM), False
            *whole, rest = (rest + block).split(b"\n")
            yield from (line + b"\n" for line in whole)
    if rest:
        yield rest


def _json(lines: Iterator[bytes], form: Format) -> Iterator[pa.RecordBatch]:
    records = (record for line in lines if (record := line.strip()))
    while chunk := list(islice(records, _LINES)):
        yield decode(form, [], chunk)


def _parquet(
    filesystem: fs.FileSystem, path: str, columns: Columns, wanted: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path, filesystem=filesystem) as footer:
        check_parquet(footer, columns)
        asked = [name for name in wanted if name in footer.schema_arrow.names]
        for group in range(footer.num_row_groups):  # what is whole before a damage is kept
            for batch in footer.iter_batches(row_groups=[group], columns=asked, use_threads=False):
                yield _shaped(batch, columns, wanted)


def check_parquet(footer: pq.ParquetFile, columns: Columns) -> None:
    """Every declared column that the file has must fit, and the required ones must be there."""
    found = footer.schema_arrow
    for name in columns.required:
        if name not in found.names:
            raise UnreadableFile(f"the Parquet file has no column {name!r}")
    for field in columns.schema:
        if found.names.count(field.name) > 1:
            raise UnreadableFile(f"the Parquet file has the column {field.name!r} twice")
        if field.name in found.names and not _fits(found.field(field.name).type, field.type):
            raise UnreadableFile(
                f"column {field.name!r}: expected {type_text(field.type)}, found "
                f"{found.field(field.name).type}"
            )


def _fits(found: pa.DataType, declared: pa.DataType) -> bool:
    """Whether the declared type holds every value of the type that was found."""
    kind = spark_type(found)
    if pa.types.is_timestamp(declared) and pa.types.is_timestamp(kind):
        return declared.tz is not None or kind.tz is None
    if pa.types.is_integer(declared) and pa.types.is_integer(kind):
        signed = kind.bit_width + (0 if pa.types.is_signed_integer(kind) else 1)
        return bool(signed <= declared.bit_width)
    if pa.types.is_floating(declared) and pa.types.is_floating(kind):
        return bool(kind.bit_width <= declared.bit_width)
    if pa.types.is_decimal(declared) and pa.types.is_decimal(kind):
        whole = declared.precision - declared.scale
        return bool(kind.scale <= declared.scale and kind.precision - kind.scale <= whole)
    return bool(kind == spark_type(declared)) or pa.types.is_null(kind)


def _shaped(batch: pa.RecordBatch, columns: Columns, wanted: Sequence[str]) -> pa.RecordBatch:
    fields = [columns.schema.field(name) for name in wanted]
    fields += [NOTE_COLUMNS.field(name) for name in (RAW, REASON)]
    arrays = [
        _cast(batch.column(field.name), field.type, columns.zone)
        if field.name in batch.schema.names
        else pa.nulls(len(batch), field.type)
        for field in fields
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _cast(column: pa.Array, kind: pa.DataType, zone: str) -> pa.Array:
    if column.type == kind:
        return column
    if pa.types.is_timestamp(kind):
        times = utc_time(column, "UTC" if kind.tz is None else zone)
        return times.cast(kind)
    if isinstance(column, pa.ExtensionArray):
        column = pa.array([None if v is None else str(v) for v in column.to_pylist()], pa.string())
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(kind)
