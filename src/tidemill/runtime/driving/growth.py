"""Records that grow fields nobody declared: an archive whose columns were inferred grows with them.

Such fields are kept in ``_extra`` meanwhile, so nothing is lost. When a batch had some, its run is
stopped, the new fields are pinned beside the old ones, and another run goes on where the archive
ends. Fields that changed their type are no growth: those records are dead letters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.connectors.logs.contract import live_home
from tidemill.iceberg.catalog import open_catalog
from tidemill.records.ddl import parse_columns, write_columns
from tidemill.records.inference import infer_columns, pin_columns, pinned_path
from tidemill.rows.columns import EXTRA

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.manifest import Manifest

_SAMPLE = 1_000


class GrowthWatch:
    """Looks whether the archives of a run have met new fields."""

    def __init__(self, loaded: LoadedConfig, manifest: Manifest) -> None:
        """Only streams whose columns were inferred can grow by themselves."""
        self.loaded = loaded
        self.catalog = open_catalog(loaded)
        self.tables = {
            name: manifest.sinks[name].table
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
        self._batches = batches
        return self._is_behind or any(
            [self._look(name, table) for name, table in self.tables.items()]
        )

    def _look(self, stream: str, name: str) -> bool:
        table = self.catalog.load_table(name)
        current, before = table.metadata.current_snapshot_id, self._seen.get(stream)
        self._seen[stream] = current
        if current == before or not _has_extra(table):
            return False
        path = pinned_path(self.loaded, stream)
        known = parse_columns(path.read_text("utf-8").strip())
        found = parse_columns(infer_columns(_extras(table), ""))
        more = [field for field in found if field.name not in known.names]
        for field in more:
            known = known.append(field)
        if more:
            pin_columns(path, write_columns(known))
        return bool(more)


def has_grown(loaded: LoadedConfig, manifest: Manifest) -> bool:
    """Whether columns were pinned that the run does not have: another run goes on with them."""
    if manifest.code:
        return False
    return any(
        set(parse_columns(pinned_path(loaded, pin.stream).read_text("utf-8").strip()).names)
        - set(pin.columns)
        for pin in manifest.sources.values()
        if live_home(loaded, pin.stream).grows
    )


def _has_extra(table: Table) -> bool:
    """Whether the newest snapshot's own files have such fields; metadata tells."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return False
    field = table.schema().find_field(EXTRA).field_id
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id == snapshot.snapshot_id:
            for entry in manifest.fetch_manifest_entry(table.io):
                nulls = (entry.data_file.null_value_counts or {}).get(field, 0)
                if nulls < entry.data_file.record_count:
                    return True
    return False


def _extras(table: Table) -> list[bytes | None]:
    rows = table.scan(f"{EXTRA} is not null", selected_fields=(EXTRA,), limit=_SAMPLE).to_arrow()
    return [text.encode() for text in rows.column(EXTRA).to_pylist()]
