"""Publish a backfill: its rows take the place of production's, and a revert puts those back.

Every output is one commit of its own, so several outputs cannot change at the same instant. All of
them are checked before the first is changed. If a later one fails all the same, the error says
which are published; the same call goes on with the rest, because the others say that they are done.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tidemill.connectors.sinks.replacing import (
    Action,
    Change,
    Outlook,
    Replacement,
    count_json,
)
from tidemill.errors import RequestError, RunError, TidemillError
from tidemill.iceberg.catalog import open_catalog
from tidemill.review.coverage import Coverage, require_all_rows, require_input
from tidemill.review.outputs import ReviewedOutput, open_outputs, require_end
from tidemill.review.writers import Writers
from tidemill.runfolder.compared import read_compared
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lease import hold_lease
from tidemill.runtime.registry import Registry, RunState

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.manifest import Manifest

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublishRequest:
    """What is asked of a publish or a revert, with the checks that the user gives up."""

    run: str
    action: Action = Action.PUBLISH
    dry_run: bool = False
    min_match: float | None = None  # percent
    changed: bool = False  # the range may have other rows than those that were looked at
    while_live: bool = False  # a run may still write rows of the range
    other_schema: bool = False
    unfinished: bool = False
    partial: bool = False  # the run read a part of the input, or had other parameters
    looked: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    """By output the states that a dry run has shown: what has changed since then is refused."""


@dataclass(frozen=True)
class ReviewedChange:
    """What was done, or would be done, with one output."""

    run: str
    output: str
    place: str
    outlook: Outlook
    change: Change | None  # None: it was a dry run, and it is not done
    match: float | None = None
    """Percent, of the last comparison; None: there was none since production was last changed."""

    def to_json(self) -> dict[str, Any]:
        """As ``publish --json`` prints it."""
        change = self.change
        return {
            "output": self.output,
            "table": self.place,
            "done_before": self.outlook.done is not None,
            "replaced_by": self.outlook.replaced_by,
            "columns": list(self.outlook.columns),
            "match": self.match,
            **count_json(self.outlook.counts if change is None else change.counts),
            "change": None if change is None else change.to_json(),
        }


def review(loaded: LoadedConfig, registry: Registry, asked: PublishRequest) -> list[ReviewedChange]:
    """Publish or revert all outputs of a run; with ``dry_run`` only say what would be done."""
    record = registry.get(asked.run)
    folder = RunFolder.of(loaded.home, record.run)
    manifest = folder.read_manifest()
    is_publish = asked.action is Action.PUBLISH
    require_end(manifest)
    if is_publish and record.state is not RunState.FINISHED and not asked.unfinished:
        raise RunError(
            f"the run {record.run} is {record.state}, not finished: its shadow lacks rows",
            fix=f"'tidemill resume {record.run}' goes on with it; --unfinished publishes what is "
            "there, and the other rows of the range are lost. Nothing was changed",
            run=record.run,
        )
    if is_publish and not asked.unfinished:
        require_input(manifest)
    held = contextlib.nullcontext() if asked.dry_run else hold_lease(folder.path, record.run)
    with held:
        return _Review(loaded, registry, asked, manifest, folder).carry_out()


@dataclass(frozen=True)
class _Review:
    """One call."""

    loaded: LoadedConfig
    registry: Registry
    asked: PublishRequest
    manifest: Manifest
    folder: RunFolder

    def carry_out(self) -> list[ReviewedChange]:
        """First look at all outputs, then change one after the other."""
        looked = [(each, self._look(each)) for each in self._outputs()]
        if self.asked.dry_run:
            return [self._told(each, outlook, outlook.done) for each, outlook in looked]
        done: list[ReviewedChange] = []
        for each, outlook in looked:
            with self._telling(done):
                done.append(self._told(each, outlook, self._change(each)))
        return done

    def _outputs(self) -> list[ReviewedOutput]:
        catalog = open_catalog(self.loaded)
        found = open_outputs(self.loaded, catalog, self.manifest, self.folder)
        if self.asked.action is Action.REVERT:
            return self._published(found)
        if all(map(self._is_done, found)):
            return found
        self._require_named(found)
        if not self.asked.partial:
            places = [each.production.place for each in found]
            Coverage(self.loaded, self.registry, self.manifest).require_whole(places)
        if not self.asked.changed:
            require_all_rows(self.registry, self.manifest, found)
        if self.asked.min_match is None:
            return found
        if not 0 <= self.asked.min_match <= 100:
            raise RequestError(
                f"min_match is a percentage from 0 to 100, found {self.asked.min_match}",
                fix="99.9 asks for 999 equal rows of 1,000; nothing was changed",
            )
        from tidemill.review.comparing import CompareRequest, compare_run

        compare_run(self.loaded, self.registry, CompareRequest.of(self.manifest.run))
        hold_compared(self.loaded, self.registry, self.manifest.run)
        found = open_outputs(self.loaded, catalog, self.manifest, self.folder)
        for each in found:
            match = None if each.compared is None else each.compared.match
            if match is None or match < self.asked.min_match:
                told = "nothing could be compared" if match is None else f"{match:.6f}% are equal"
                raise RunError(
                    f"the output {each.name!r} does not match: {told}, --min-match asks for "
                    f"{self.asked.min_match:g}%",
                    where=f"table {each.production.place}",
                    fix=f"'tidemill compare {self.manifest.run}' shows the differences; nothing "
                    "was changed",
                    match=match,
                )
        return found

    def _published(self, outputs: list[ReviewedOutput]) -> list[ReviewedOutput]:
        """Those that were published, or put back: a publish may have failed before the others.

        All of them, if none was: what is looked at then says why.
        """
        run = self.manifest.run
        changed = [
            each
            for each in outputs
            if any(each.production.done(run, action) is not None for action in Action)
        ]
        return changed or outputs

    def _require_named(self, outputs: list[ReviewedOutput]) -> None:
        """Refuse a table beside which the shadow was made, and that the YAML names no more."""
        section = self.loaded.config.pipelines.get(self.manifest.pipeline)
        for each in outputs:
            sink = None if section is None else section.sinks.get(each.name)
            place = each.production.place
            if sink is not None and sink.target != place and not self._is_done(each):
                raise RunError(
                    f"the shadow stands beside {place}, and the YAML names {sink.target} for the "
                    f"output {each.name!r} now: which of them is to be changed is not known",
                    where=f"table {place}",
                    fix=f"run the backfill again for {sink.target}; or name {place} in the YAML to "
                    "change that one. Nothing was changed",
                    run=self.manifest.run,
                )

    def _is_done(self, output: ReviewedOutput) -> bool:
        return output.production.done(self.manifest.run, self.asked.action) is not None

    def _look(self, output: ReviewedOutput) -> Outlook:
        outlook = output.production.look(self._replacement(output), self.asked.action)
        if outlook.done is None and not self.asked.while_live:
            times = self.manifest.times
            known = times.needs.look_ahead
            ahead = max(times.boundaries[-1] - times.output[1], 0) if known is None else known
            place = output.production
            Writers(self.loaded, self.registry, place, times.output, ahead).require_none()
        return outlook

    def _change(self, output: ReviewedOutput) -> Change:
        asked = self._replacement(output)
        if self.asked.action is Action.PUBLISH:
            return output.production.publish(asked)
        return output.production.revert(asked)

    def _replacement(self, output: ReviewedOutput) -> Replacement:
        """What is asked; where nobody has compared, what a dry run has shown is what was seen."""
        asked = output.asked(
            self.manifest.run,
            self.folder,
            changed=self.asked.changed,
            other_schema=self.asked.other_schema,
        )
        states = self.asked.looked.get(output.name)
        if asked.was_seen or states is None:
            return asked
        return replace(asked, was_seen=True, seen=states[0], seen_shadow=states[1])

    def _told(
        self, output: ReviewedOutput, outlook: Outlook, change: Change | None
    ) -> ReviewedChange:
        known, match = output.compared, None
        if known is not None and self.asked.action is Action.PUBLISH:
            own = None if change is None or outlook.done is not None else change.token
            later = [each for each in output.production.changes() if each.at >= known.at]
            match = known.match if all(each.token == own for each in later) else None
        return ReviewedChange(
            self.manifest.run, output.name, output.production.place, outlook, change, match
        )

    @contextlib.contextmanager
    def _telling(self, done: list[ReviewedChange]) -> Iterator[None]:
        """An error after the first output says which of them are changed already."""
        try:
            yield
        except TidemillError as error:
            if not done:
                raise
            names = ", ".join(each.output for each in done)
            again = f"'tidemill {self.asked.action} {self.manifest.run}' goes on with the rest"
            raise RunError(
                f"{error.message}. Changed already: {names}",
                where=error.where,
                fix=f"{error.fix}; then {again}",
            ) from error


def hold_compared(loaded: LoadedConfig, registry: Registry, run: str) -> None:
    """Keep the states of production that a comparison has seen, so that publishing finds them.

    A live run's own expiry would take them away within a minute. If it cannot be done, the
    comparison is good all the same; publishing then asks for another one.
    """
    record = registry.get(run)
    folder = RunFolder.of(loaded.home, record.run)
    if not read_compared(folder):
        return
    try:
        manifest = folder.read_manifest()
        for each in open_outputs(loaded, open_catalog(loaded), manifest, folder):
            if each.compared is not None:
                each.production.hold(each.compared.snapshot, record.run)
    except (TidemillError, OSError) as error:
        _LOG.info("the compared state is not kept: %s", error)
