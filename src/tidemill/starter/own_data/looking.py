"""Look at a user's archive: find it, read some of its rows, ask its metadata for their times.

Nothing is written. How much is read does not depend on how much there is: the metadata that a plan
reads, too, and the first rows of some row groups.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import yaml

from tidemill.config.archive import ARCHIVES
from tidemill.config.loader import load_config
from tidemill.connectors.archives.contract import Archive
from tidemill.errors import ConfigError, SourceError, TidemillError
from tidemill.iceberg.catalog import open_metadata
from tidemill.planning.manifest import SourcePin, SourceTimes
from tidemill.planning.statistics import SourceStatistics
from tidemill.rows.columns import spark_type
from tidemill.starter.own_data.columns import Columns, find_columns
from tidemill.starter.own_data.times import Times, find_times, in_utc
from tidemill.types import BEGINNING, FOREVER_MICROS, from_micros, to_micros

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from tidemill.config.loader import LoadedConfig
    from tidemill.connectors.archives.contract import ArchiveReader
    from tidemill.planning.manifest import ArchivePin

SAMPLE = 200_000
"""About how many rows are looked at."""
_OPTION = re.compile(r"([A-Za-z][\w.-]*)=(.*)", re.DOTALL)
_SQLITE = "sqlite:///"
_STREAM = "archive"


@dataclass(frozen=True)
class Wish:
    """What the user said."""

    archive: str  # a folder, a URI, or a table's name
    event_time: str | None = None
    ingest_time: str | None = None
    catalog: tuple[str, ...] = ()  # a URI, or KEY=VALUE


@dataclass(frozen=True)
class Found:
    """All that was found in an archive."""

    section: dict[str, Any]  # of the YAML: type, and where it is
    catalog: dict[str, str]  # of the YAML: what was said of it
    pin: ArchivePin
    times: Times
    columns: Columns
    rows: int
    files: int
    looked_at: int
    span: tuple[datetime, datetime]  # the first and the last ingest time of all rows
    usual: tuple[datetime, datetime]  # event times: nearly all rows of the sample lie between them


def look(wish: Wish) -> Found:
    """Find the archive and look at it."""
    place = _absolute(wish.archive)
    section, said = _section(wish.archive, place), catalog_options(wish.catalog)
    with _probe({**section, "ingest_time": ""}, said) as loaded:
        archive = loaded.config.streams[_STREAM].archive
        assert isinstance(archive, Archive)
        catalog = cast("Catalog", None)  # an archive that is no table of it does not ask it
        if archive.as_table() is not None:
            catalog = _open(loaded)
        pin = archive.pin(catalog, Path("/"), "--archive")
        rows = _sample(type(archive).open(_source(pin), catalog), wish)
        times, statistics = _decide(rows, wish, lambda at: type(archive).open(at, catalog), pin)
    first, last = statistics.span or (0, 0)
    return Found(
        section,
        said,
        pin,
        times,
        find_columns(rows, {*times.candidates, *(near.column for near in times.nearly)}),
        sum(extent.rows for extent in statistics.extents),
        len({extent.file for extent in statistics.extents}),
        len(rows),
        (_moment(first), _moment(last)),
        _usual(in_utc(rows, times.event, times.zone)),
    )


def catalog_options(given: Sequence[str]) -> dict[str, str]:
    """The catalog's section of the YAML; local places as absolute paths."""
    found: dict[str, str] = {}
    for text in given:
        option = _OPTION.fullmatch(text)
        if option is None and ":" not in text:
            raise ConfigError(
                f"{text!r} is neither a URI nor KEY=VALUE",
                where="--catalog",
                fix="write for example: --catalog sqlite:///lake/catalog.db --catalog name=lake",
            )
        key, value = ("uri", text) if option is None else option.groups()
        if key == "uri" and value.startswith(_SQLITE):
            value = _SQLITE + str(Path(value.removeprefix(_SQLITE)).absolute())
        elif key == "warehouse" and "://" not in value and "$" not in value:
            value = str(Path(value).absolute())
        found[key] = value
    return found


def _absolute(place: str) -> str:
    path = Path(place)
    return str(path.resolve()) if "://" not in place and path.exists() else place


def _section(said: str, place: str) -> dict[str, Any]:
    """Ask every kind of archive whether it knows the place, the last in the table first.

    These are the special ones: a Delta table is a folder of Parquet files, too.
    """
    for name in reversed(ARCHIVES.names()):
        try:
            kind = ARCHIVES.find(name)
        except ConfigError:  # a package of the user's that cannot be loaded
            continue
        keys = kind.recognise(place)
        if keys is not None:
            return {"type": name, **keys}
    path = Path(place)
    if path.is_file() and path.suffix.lower() != ".parquet":
        raise ConfigError(
            f"{said} is a file, and an archive is a folder of Parquet files",
            where="--archive",
            fix="write it as Parquet into a folder of its own first, and name that folder",
        )
    if path.is_file():
        raise ConfigError(
            f"{said} is a file, and an archive is a folder of files",
            where="--archive",
            fix=f"name the folder that it is in: --archive {Path(said).parent}",
        )
    if path.is_dir():
        raise ConfigError(
            f"there are no Parquet files below {said}",
            where="--archive",
            fix="name a folder that has .parquet files; write CSV or JSON files as Parquet first",
        )
    raise ConfigError(
        f"{said!r} is neither a folder nor the name of a table",
        where="--archive",
        fix="name a folder of Parquet files, the folder of a Delta table, or an Iceberg table as "
        "namespace.table",
    )


@contextmanager
def _probe(archive: Mapping[str, Any], catalog: Mapping[str, str]) -> Iterator[LoadedConfig]:
    """A project with this archive, checked as every project is, that is gone afterwards."""
    with TemporaryDirectory(prefix="tidemill-init-") as folder:
        path = Path(folder) / "tidemill.yaml"
        stream = {"event_time": "", "archive": dict(archive)}
        text = {"catalog": dict(catalog), "streams": {_STREAM: stream}}
        path.write_text(yaml.safe_dump(text), "utf-8")
        try:
            loaded = load_config(path)
        except ConfigError as error:
            raise ConfigError(error.message, where="--catalog", fix=error.fix) from None
        try:
            yield loaded
        except TidemillError as error:
            names = error.facts.get("catalog_names")
            if isinstance(names, list):
                raise ConfigError(
                    loaded.redact(error.message),
                    where="--catalog",
                    fix="a SQL catalog keeps the tables of each name apart, and has this one under "
                    f"the name {names[0]!r}: add --catalog name={names[0]}",
                ) from None
            told = (error.message, error.where, error.fix)
            message, where, fix = map(loaded.redact, told)
            raise type(error)(message, where=where, fix=fix) from None


def _open(loaded: LoadedConfig) -> Catalog:
    uri = loaded.config.catalog.uri
    path = loaded.base / uri.removeprefix(_SQLITE)
    if uri.startswith(_SQLITE) and not path.exists():
        is_said = "uri" in loaded.config.catalog.model_fields_set
        raise ConfigError(
            f"there is no catalog {path}" if is_said else "the table's catalog is not known",
            where="--catalog",
            fix="say where it is: --catalog sqlite:///lake/catalog.db, or the URI of a REST catalog"
            "; and what else pyiceberg needs: --catalog name=lake --catalog 'token=${TOKEN}'",
        )
    return open_metadata(loaded)


def _source(pin: ArchivePin, event: str = "", ingest: str = "") -> SourcePin:
    return SourcePin(_STREAM, pin, SourceTimes(event, ingest))


def _sample(reader: ArchiveReader, wish: Wish) -> pa.Table:
    """Some rows, as Spark would see them but for the types of times."""
    batches = [batch for batch in reader.sample(SAMPLE) if len(batch)]
    if not batches:
        raise ConfigError(
            "the archive has no rows, or its kind does not let 'init' look at them",
            where=f"--archive {wish.archive}",
            fix="name one that has rows, or write the YAML by hand",
        )
    rows = pa.Table.from_batches(batches)
    kinds = [f.type if pa.types.is_timestamp(f.type) else spark_type(f.type) for f in rows.schema]
    return rows.cast(pa.schema(list(zip(rows.column_names, kinds, strict=True))))


def _decide(
    rows: pa.Table, wish: Wish, open_reader: Any, pin: ArchivePin
) -> tuple[Times, SourceStatistics]:
    """The times, with an ingest time for which a plan can be made: metadata must know all of it."""
    unfit: dict[str, str] = {}
    while True:
        times = find_times(rows, wish.event_time, wish.ingest_time, unfit)
        reader = open_reader(_source(pin, times.event, times.ingest))
        try:
            found = reader.extents(to_micros(BEGINNING), FOREVER_MICROS)
            reader.verify()
            return times, SourceStatistics(tuple(extent for _, extent in found))
        except SourceError as error:
            if wish.ingest_time is not None:
                raise
            unfit[times.ingest] = f"{error.where}: {error.message}"


def _usual(times: pa.ChunkedArray) -> tuple[datetime, datetime]:
    low, high = pc.quantile(
        times.cast(pa.int64()).drop_null(), [0.001, 0.999], interpolation="nearest"
    ).to_pylist()
    return _moment(low), _moment(high)


def _moment(micros: int) -> datetime:
    """A time of the archive, which may be none of the calendar."""
    return from_micros(min(max(micros, to_micros(BEGINNING)), FOREVER_MICROS))
