"""Records that grow fields nobody declared: an archive whose columns were inferred grows with them.

Such fields are kept in ``_extra`` meanwhile, so nothing is lost. When a batch had some, its run is
stopped, the new fields are pinned beside the old ones, and another run goes on where the archive
ends. Fields that changed their type are no growth: those records are dead letters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tidemill.config.loader import LoadedConfig
from tidemill.connectors.logs.contract import live_home
from tidemill.iceberg.catalog import open_catalog
from tidemill.iceberg.outage import is_outage
from tidemill.planning.manifest import Manifest
from tidemill.records.ddl import parse_columns, write_columns
from tidemill.records.inference import infer_columns, pin_columns, pinned_path
from tidemill.rows.columns import EXTRA

if TYPE_CHECKING:
    from pyiceberg.table import Table

_SAMPLE = 1_000


class GrowthWatch:
    """Looks whether the archives of a run have met new fields."""

    def __init__(self, loaded: LoadedConfig, manifest: Manifest) -> None:
        """Only streams whose columns were inferred can grow by themselves."""
        self.loaded, self.catalog = loaded, open_catalog(loaded)
        self.tables = {
            name: manifest.outputs.sinks[name].table
            for name, pin in manifest.sources.items()
            if live_home(loaded, pin.stream).grows
        }
        self._seen: dict[str, int | None] = {}
        self._batches, self._is_behind = 0, has_grown(loaded, manifest)

    def look(self, batches: int) -> bool:
        """Pin new fields of batches since the last look; tells whether there were any.

        ``batches`` is how many were committed: the catalog is asked only after another one. A run
        whose columns were pinned anew before it began has grown already: its driver died then.
        """
        if batches == self._batches:
            return self._is_behind
        try:
            found = [self._look(name, table) for name, table in self.tables.items()]
        except Exception as error:
            if not is_outage(error):
                raise
            return self._is_behind  # the catalog is asked again at the next look
        self._batches = batches
        return self._is_behind or any(found)

    def _look(self, stream: str, name: str) -> bool:
        table = self.catalog.load_table(name)
        current, before = table.metadata.current_snapshot_id, self._seen.get(stream)
        self._seen[stream] = current
        if current == before or not _has_extra(table):
            return False
        known = _pinned(self.loaded, stream)
        only = f"{EXTRA} is not null"
        rows = table.scan(only, selected_fields=(EXTRA,), limit=_SAMPLE).to_arrow()
        extras = [text.encode() for text in rows.column(EXTRA).to_pylist()]
        found = parse_columns(infer_columns(extras, ""))
        more = [field for field in found if field.name not in known.names]
        if more:
            columns = write_columns(pa.schema([*known, *more]))
            pin_columns(pinned_path(self.loaded, stream), columns)
        return bool(more)


def has_grown(loaded: LoadedConfig, manifest: Manifest) -> bool:
    """Whether columns were pinned that the run does not have: another run goes on with them."""
    return not manifest.code.is_there and any(
        set(_pinned(loaded, pin.stream).names) - set(pin.rows.columns)
        for pin in manifest.sources.values()
        if live_home(loaded, pin.stream).grows
    )


def _pinned(loaded: LoadedConfig, stream: str) -> pa.Schema:
    return parse_columns(pinned_path(loaded, stream).read_text("utf-8").strip())


def _has_extra(table: Table) -> bool:
    """Whether the newest snapshot's own files have such fields; metadata tells."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return False
    field = table.schema().find_field(EXTRA).field_id
    return any(
        (entry.data_file.null_value_counts or {}).get(field, 0) < entry.data_file.record_count
        for manifest in snapshot.manifests(table.io)
        if manifest.added_snapshot_id == snapshot.snapshot_id
        for entry in manifest.fetch_manifest_entry(table.io)
    )
