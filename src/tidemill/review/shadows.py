"""The shadows of a project's catalog: how old, how large, published or not; and how they go."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tidemill.connectors.sinks.iceberg.changes import standing_changes
from tidemill.connectors.sinks.iceberg.production import IcebergProduction
from tidemill.connectors.sinks.replacing import Action
from tidemill.errors import RequestError, nearest
from tidemill.iceberg.catalog import find_table, list_tables, open_catalog
from tidemill.planning.requests import Length
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lease import hold_lease
from tidemill.runfolder.owner import is_owner, owner_place
from tidemill.runtime.registry import GOING_ON, Registry, RunRecord
from tidemill.runtime.starts.naming import find_manifest
from tidemill.types import TimeRange, from_micros, parse_duration, show_instant

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from tidemill.config.loader import LoadedConfig

_SHADOW = re.compile(r"(?P<place>.+)__(?P<run>\d{8}_\d{6}_[0-9a-f]{4})")


@dataclass(frozen=True)
class Shadow:
    """A table that a backfill wrote beside production."""

    table: str
    place: str  # the table that it stands beside
    run: str
    pipeline: str | None  # None: the registry has forgotten the run
    state: str | None
    created: datetime  # of the run
    rows: int
    bytes: int
    range: TimeRange | None  # None: the run's folder is gone
    published: Action | None  # what was done last with the run at the place; None: nothing
    stranger: str | None = None  # why it is not this project's; None: it is

    @property
    def is_idle(self) -> bool:
        """Whether it is this project's, and nobody writes it."""
        return self.stranger is None and self.state not in GOING_ON

    @property
    def is_published(self) -> bool:
        """Whether production has the shadow's rows now."""
        return self.published is Action.PUBLISH

    def to_json(self) -> dict[str, Any]:
        """As ``shadows --json`` prints it."""
        span = self.range
        return {
            "table": self.table,
            "beside": self.place,
            "run": self.run,
            "pipeline": self.pipeline,
            "state": self.state,
            "foreign": self.stranger,
            "created": show_instant(self.created),
            "rows": self.rows,
            "bytes": self.bytes,
            "range": span and {"from": show_instant(span.start), "to": show_instant(span.end)},
            "published": self.is_published,
            "reverted": self.published is Action.REVERT,
        }


@dataclass(frozen=True)
class DroppedShadow:
    """A shadow that was deleted, or would be."""

    shadow: Shadow
    freed: int | None = None  # bytes; None: it was a dry run

    def to_json(self) -> dict[str, Any]:
        """As ``shadows drop --json`` prints it."""
        return {**self.shadow.to_json(), "freed_bytes": self.freed}


@dataclass(frozen=True)
class Shadows:
    """The shadows in a project's catalog, also those of others who share it."""

    loaded: LoadedConfig
    registry: Registry

    def list(self) -> list[Shadow]:
        """All of them, the oldest first; nothing is changed."""
        catalog = open_catalog(self.loaded)
        records = {record.run: record for record in self.registry.runs()}
        found = (self._shadow(catalog, records, name) for name in list_tables(catalog))
        known = [each for each in found if each is not None]
        return sorted(known, key=lambda each: (each.created, each.table))

    def _shadow(self, catalog: Catalog, records: dict[str, RunRecord], name: str) -> Shadow | None:
        parts = _SHADOW.fullmatch(name)
        table = None if parts is None else find_table(catalog, name)
        if parts is None or table is None:
            return None
        place, run = parts["place"], parts["run"]
        production, record = find_table(catalog, place), records.get(run)
        manifest = find_manifest(self.loaded.home, run)
        told = [] if production is None else standing_changes(production.metadata, run)
        rows, size = _size(table)
        return Shadow(
            table=name,
            place=place,
            run=run,
            pipeline=None if record is None else record.pipeline,
            state=None if record is None else str(record.state),
            created=_created(run),
            rows=rows,
            bytes=size,
            range=None if manifest is None else _range(manifest.times.output),
            published=told[-1].action if told else None,
            stranger=self._stranger(table, is_known=record is not None),
        )

    def _stranger(self, table: Table, *, is_known: bool) -> str | None:
        """Why a shadow is not this project's. One that does not say whose it is, is its run's."""
        told = table.metadata.properties
        is_ours = is_owner(self.loaded.home, told)
        if is_ours is None:
            return None if is_known else "not known here"
        return None if is_ours else f"of another project ({owner_place(told)})"

    def choose(
        self,
        runs: Collection[str] = (),
        *,
        older_than: Length | None = None,
        unpublished: bool = False,
        foreign: bool = False,
        now: datetime | None = None,
    ) -> Sequence[Shadow]:
        """The shadows of these runs, or those that are so old.

        Those of another project are never chosen by age, and by name only if it is ``foreign``.
        """
        if bool(runs) is (older_than is not None):
            raise RequestError(
                "either runs are named, or their shadows are chosen by age",
                fix="'tidemill shadows drop RUN', or --older-than 30d --unpublished",
            )
        found = self.list()
        if runs:
            named = {self._id(run) for run in runs}
            missing = named - {each.run for each in found}
            if missing:
                gone, known = min(missing), [each.run for each in found]
                raise RequestError(
                    f"there is no shadow of the run {gone!r} in the catalog",
                    fix=nearest(gone, known) if known else "there are no shadows any more",
                )
            found = [each for each in found if each.run in named]
            if not foreign:
                _require_own(found)
        if older_than is not None:
            age: timedelta = parse_duration(older_than)
            latest = (now or datetime.now(UTC)) - age
            found = [each for each in found if each.created <= latest and each.is_idle]
        return [each for each in found if not (unpublished and each.is_published)]

    def drop(self, chosen: Iterable[Shadow]) -> Iterator[DroppedShadow]:
        """Delete shadows, one after the other; files that production refers to stay with it.

        Yields each when it is gone. After it the run cannot be published or reverted any more.
        """
        catalog = open_catalog(self.loaded)
        pipelines = self.loaded.config.pipelines.values()
        places = [sink.target for each in pipelines for sink in each.sinks.values()]
        for each in chosen:
            with self._held(each.run):
                beside = IcebergProduction(catalog, each.place, each.table, None)
                freed = beside.drop_shadow(each.run, others=places)
            yield DroppedShadow(each, freed)

    def _held(self, run: str) -> AbstractContextManager[object]:
        """Nobody resumes, publishes or reverts the run meanwhile."""
        path = RunFolder.of(self.loaded.home, run).path
        return hold_lease(path, run) if path.is_dir() else nullcontext()

    def _id(self, run: str) -> str:
        return self.registry.named(run) or run


def drop_shadows(
    loaded: LoadedConfig,
    registry: Registry,
    runs: Collection[str] = (),
    *,
    older_than: Length | None = None,
    unpublished: bool = False,
    foreign: bool = False,
    dry_run: bool = False,
) -> list[DroppedShadow]:
    """Delete the shadows of these runs, or those that are so old; with ``dry_run`` only list."""
    shadows = Shadows(loaded, registry)
    chosen = shadows.choose(runs, older_than=older_than, unpublished=unpublished, foreign=foreign)
    return list(map(DroppedShadow, chosen)) if dry_run else list(shadows.drop(chosen))


def _require_own(chosen: Iterable[Shadow]) -> None:
    for each in chosen:
        if each.stranger is not None:
            raise RequestError(
                f"the shadow {each.table} is not this project's: {each.stranger}",
                fix="drop it from its own project, where a run that still writes it is known; "
                "--foreign drops it from here all the same. Nothing was deleted",
            )


def _size(table: Table) -> tuple[int, int]:
    """Rows and bytes, as the newest snapshot counts them."""
    snapshot = table.metadata.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return 0, 0
    told = snapshot.summary.additional_properties
    return int(told.get("total-records", 0)), int(told.get("total-files-size", 0))


def _created(run: str) -> datetime:
    """The time in a run's id."""
    return datetime.strptime(run[:15], "%Y%m%d_%H%M%S").replace(tzinfo=UTC)


def _range(span: tuple[int, int]) -> TimeRange:
    return TimeRange(from_micros(span[0]), from_micros(span[1]))
