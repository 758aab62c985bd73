"""Whether a run's rows are all rows of its range, or only those of a part of the input.

The shadow of `backfill --region eu` has the rows of one region. Published, it would delete those of
all other regions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.errors import RunError
from tidemill.planning.code.params import Param, write
from tidemill.runtime.registry import RunState
from tidemill.runtime.starts.naming import find_manifest
from tidemill.types import from_micros, show_instant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.manifest import Manifest
    from tidemill.review.outputs import ReviewedOutput
    from tidemill.runtime.registry import Registry


def require_input(manifest: Manifest) -> None:
    """Refuse a run whose range needs input of times that had not happened when it was planned."""
    needed, read = manifest.needed_input, manifest.read_input
    if needed is None or read is None or read >= needed:
        return
    raise RunError(
        f"the run {manifest.run} had read input until {_shown(read)} only, and its range needs "
        f"input until {_shown(needed)}: rows after {_shown(manifest.complete_output[1])} are not "
        "complete",
        fix=f"run the backfill again after {_shown(needed)}; --unfinished publishes what is there, "
        "and production's complete rows of these times are lost. Nothing was changed",
        run=manifest.run,
    )


def require_all_rows(
    registry: Registry, manifest: Manifest, outputs: Sequence[ReviewedOutput]
) -> None:
    """Refuse shadows with other rows than a finished run has counted: somebody changed them.

    Nothing is known of a run without a batch, and of one whose last commit nobody has counted.
    """
    totals, record = registry.totals(manifest.run), registry.get(manifest.run)
    if record.state is not RunState.FINISHED or not totals.batches:
        return
    found = [each.production.shadow_rows() for each in outputs]
    rows = sum(each for each in found if each is not None)
    if None not in found and rows != totals.out:
        raise RunError(
            f"the run {manifest.run} wrote {totals.out:,} rows, and its shadow has {rows:,}",
            fix="somebody changed the shadow: run the backfill again; --changed publishes it as it "
            "is. Nothing was changed",
            run=manifest.run,
        )


def _shown(at: int) -> str:
    return show_instant(from_micros(at))


_FILTERS = ("region", "where")


@dataclass(frozen=True)
class Coverage:
    """Compares what a backfill was asked with what production's rows are made of.

    That is what the YAML says, or how the newest live run that writes the place was started.
    """

    loaded: LoadedConfig
    registry: Registry
    manifest: Manifest

    def require_whole(self, places: Iterable[str]) -> None:
        """Refuse a run that lacks rows which production has for other input or parameters."""
        found = sorted({each for place in places for each in self.narrowed(place)})
        if found:
            raise RunError(
                f"the run {self.manifest.run} was made with {' and '.join(found)}, and production "
                "was not: its shadow may lack rows that production has",
                fix="run the backfill without it; --partial publishes all the same, and the other "
                "rows of the range are lost. Nothing was changed",
                run=self.manifest.run,
            )

    def narrowed(self, place: str) -> Iterator[str]:
        """The options of the run that production's own rows were not made with."""
        asked, live = self.manifest.identity.asked, self._live(place)
        known = [self._configured_filters()] + ([] if live is None else [_filters(live)])
        if _filters(self.manifest) not in known:
            yield from (f"--{name}" for name in _FILTERS if name in asked)
        configured = self._configured_params()
        for name in _param_names(asked.get("param", [])):
            value = self.manifest.code.params.get(name)
            is_live = live is not None and live.code.params.get(name) == value
            if not is_live and (value is None or configured.get(name) != _text(value)):
                yield f"--param {name}"

    def _configured_filters(self) -> dict[str, str | None]:
        """The filters that the YAML gives the run's sources."""
        section = self.loaded.config.pipelines.get(self.manifest.pipeline)
        given = {
            name: None if section is None else section.source(name).where
            for name in self.manifest.sources
        }
        return {name: f"({where})" if where else None for name, where in given.items()}

    def _configured_params(self) -> dict[str, str]:
        section = self.loaded.config.pipelines.get(self.manifest.pipeline)
        return {} if section is None else {n: write(v) for n, v in section.params.items()}

    def _live(self, place: str) -> Manifest | None:
        """The newest live run of the pipeline that writes the place."""
        for record in reversed(self.registry.runs()):
            if record.pipeline != self.manifest.pipeline or record.mode == "backfill":
                continue
            found = find_manifest(self.loaded.home, record.run)
            if found is None or found.times.ends:
                continue
            if any(pin.place == place for pin in found.outputs.sinks.values()):
                return found
        return None


def _filters(manifest: Manifest) -> dict[str, str | None]:
    return {name: pin.rows.where for name, pin in manifest.sources.items()}


def _param_names(given: Iterable[str]) -> Iterator[str]:
    """The names of ``NAME=VALUE`` texts."""
    return (text.partition("=")[0] for text in given)


def _text(value: Param) -> str:
    return write(value.read())
