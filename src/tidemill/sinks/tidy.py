"""Keep a table's metadata small while a run commits to it: expire its own old snapshots."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

_KEEP = 5
_ROUND = 10


def expire_own(catalog: Catalog, table: Table, name: str, run: str) -> None:
    """Now and then expire the run's snapshots but the last; never a pinned or foreign one.

    Losing against another writer is fine: the next round does it.
    """
    from pyiceberg.exceptions import CommitFailedException

    if len(table.metadata.snapshots) < _KEEP + _ROUND:
        return
    expired = _own_old(table, run)
    if len(expired) < _ROUND:
        return
    with contextlib.suppress(CommitFailedException):
        table.maintenance.expire_snapshots().by_ids([s.snapshot_id for s in expired]).commit()
        _delete_unreferenced(catalog.load_table(name), expired)


def _own_old(table: Table, run: str) -> list[Snapshot]:
    pinned = {ref.snapshot_id for ref in table.metadata.refs.values()}
    own = [
        snapshot
        for snapshot in table.metadata.snapshots
        if snapshot.summary is not None
        and snapshot.summary.additional_properties.get("tidemill.run") == run
        and snapshot.snapshot_id not in pinned
    ]
    own.sort(key=lambda snapshot: snapshot.sequence_number or 0)
    return own[:-_KEEP] if len(own) > _KEEP else []


def _delete_unreferenced(table: Table, expired: list[Snapshot]) -> None:
    """Drop manifest lists of expired snapshots and manifests no snapshot refers to any more."""
    kept = {m.manifest_path for s in table.metadata.snapshots for m in s.manifests(table.io)}
    for snapshot in expired:
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in kept:
                kept.add(manifest.manifest_path)
                with contextlib.suppress(OSError):
                    table.io.delete(manifest.manifest_path)
        with contextlib.suppress(OSError):
            table.io.delete(snapshot.manifest_list)
