"""What people do with the instances of a pipeline: add, look at them, withdraw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tidemill.config.loader import LoadedConfig
from tidemill.errors import PlanError, nearest
from tidemill.iceberg.catalog import open_catalog
from tidemill.planning.code.params import write
from tidemill.planning.instances.book import Broken
from tidemill.planning.instances.listing import InstanceStatus, Known, list_instances
from tidemill.planning.instances.values import InstanceState
from tidemill.runtime.instances.adding import Added, NewInstance, add_instance
from tidemill.runtime.instances.following import follow_instances
from tidemill.runtime.instances.opening import open_instances, section_of
from tidemill.runtime.registry import Registry
from tidemill.types import TimeRange, parse_instant


@dataclass(frozen=True)
class InstanceList:
    """The instances of a pipeline, and the rows of their table that are none."""

    pipeline: str
    instances: list[InstanceStatus] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)


@dataclass(frozen=True)
class InstancesDesk:
    """The instances of one pipeline."""

    loaded: LoadedConfig
    registry: Registry
    pipeline: str

    def add(
        self,
        instance: str,
        start: datetime | str,
        end: datetime | str,
        params: Mapping[str, Any] | None = None,
    ) -> Added:
        """Append an instance to the table. Times and values may be texts, as people write them.

        Values get the types of the table's columns. If the table is missing it is made: the id is a
        text then, and a parameter has the type that its value would have in YAML.
        """
        section = section_of(self.loaded, self.pipeline)
        values = {name: str(write(value)) for name, value in (params or {}).items()}
        new = NewInstance(instance, TimeRange(_moment(start), _moment(end)), values)
        return add_instance(open_catalog(self.loaded), section, new)

    def list(self) -> InstanceList:
        """All instances, in the order of their ids."""
        book = open_instances(self.loaded, self.pipeline, open_catalog(self.loaded)).book
        live = follow_instances(self.loaded.home, self.registry, self.pipeline, book.valid)
        known = Known(self.registry.withdrawn(self.pipeline), live)
        return InstanceList(self.pipeline, list_instances(book, known), book.broken)

    def show(self, instance: str) -> InstanceStatus:
        """One instance; a row that is none is an error that says why."""
        found = self.list()
        for each in found.instances:
            if str(each.instance.id) == instance:
                return each
        for row in found.broken:
            if str(row.id) == instance:
                raise PlanError(
                    f"the row of {instance!r} is no instance: {row.reason}",
                    where=f"pipeline {self.pipeline}",
                    fix="correct the row in the table, or add the instance under another id",
                )
        raise PlanError(
            f"there is no instance {instance!r}",
            where=f"pipeline {self.pipeline}",
            fix=nearest(instance, [str(each.instance.id) for each in found.instances]),
        )

    def withdraw(self, instance: str) -> InstanceStatus:
        """End an instance: no run begins or goes on with it. What it has given stays."""
        found = self.show(instance)
        if found.state is not InstanceState.WITHDRAWN:
            self.registry.withdraw(self.pipeline, instance)
        return self.show(instance)


def _moment(value: datetime | str) -> datetime:
    return parse_instant(value) if isinstance(value, str) else value


def find_desk(loaded: LoadedConfig, registry: Registry, instance: str) -> InstancesDesk:
    """The desk of the pipeline that has an instance; an id that several have is an error."""
    desks = [
        InstancesDesk(loaded, registry, name)
        for name, config in loaded.config.pipelines.items()
        if config.instances is not None
    ]
    if len(desks) == 1:
        return desks[0]
    found = [desk for desk in desks if _has(desk, instance)]
    if len(found) == 1:
        return found[0]
    names = [desk.pipeline for desk in found or desks]
    told = (
        f"several pipelines have an instance {instance!r}"
        if found
        else f"no instance {instance!r} is known"
    )
    fix = (
        f"say whose it is: --pipeline, one of {', '.join(names)}"
        if names
        else ("no pipeline has instances:")
    )
    raise PlanError(told, where=str(loaded.path), fix=fix)


def _has(desk: InstancesDesk, instance: str) -> bool:
    found = desk.list()
    ids = [str(each.instance.id) for each in found.instances]
    return instance in (*ids, *(str(each.id) for each in found.broken))
