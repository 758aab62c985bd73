"""What can be done with the output of a run: compare it, publish it, put it back, drop it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig
    from tidemill.connectors.sinks.replacing import Change
    from tidemill.planning.requests import When
    from tidemill.review.comparing.comparison import Comparison
    from tidemill.review.filling import Filling
    from tidemill.review.gaps import GapReport
    from tidemill.review.publishing import ReviewedChange
    from tidemill.review.shadows import DroppedShadow, Shadow
    from tidemill.runtime.registry import Registry


class ReviewDesk:
    """The review of a project's runs. No Spark is started."""

    def __init__(self, loaded: LoadedConfig, registry: Registry) -> None:
        """Nothing is opened yet."""
        self.loaded, self.registry = loaded, registry

    def compare(self, run: str, **options: Any) -> Comparison:
        """How the rows of a run differ from production's, or from those of a table or a run.

        Options are the fields of :class:`~tidemill.review.comparing.run.CompareRequest`:
        ``with_="marts.other"``, ``key=["show_id"]``, ``tolerance={"seconds": 1e-9}``,
        ``ignore=["made_at"]``, ``outputs=["plays"]``. Nothing is changed but the note that the
        comparison leaves in the run's folder.
        """
        from tidemill.review.comparing import CompareRequest, compare_run
        from tidemill.review.publishing import hold_compared

        found = compare_run(self.loaded, self.registry, CompareRequest(run, **options))
        hold_compared(self.loaded, self.registry, run)
        return found

    def publish(self, run: str, **options: Any) -> list[ReviewedChange]:
        """Replace the run's range in production by the run's rows, one commit for each output.

        Options are the fields of :class:`~tidemill.review.publishing.PublishRequest`:
        ``dry_run``, ``min_match``, ``changed``, ``while_live``, ``other_schema``, ``unfinished``,
        ``partial``.
        A repeat changes nothing.
        """
        from tidemill.review.publishing import PublishRequest, review

        return review(self.loaded, self.registry, PublishRequest(run, **options))

    def revert(self, run: str, **options: Any) -> list[ReviewedChange]:
        """Put the range back as it was before the run was published; options as in `publish`."""
        from tidemill.connectors.sinks.replacing import Action
        from tidemill.review.publishing import PublishRequest, review

        asked = PublishRequest(run, Action.REVERT, **options)
        return review(self.loaded, self.registry, asked)

    def history(self, table: str) -> list[Change]:
        """All publishes and reverts of a table, the oldest first."""
        from tidemill.review.history import read_history

        return read_history(self.loaded, table)

    def shadows(self) -> list[Shadow]:
        """The shadows in the catalog, the oldest first; also those of other projects."""
        from tidemill.review.shadows import Shadows

        return Shadows(self.loaded, self.registry).list()

    def drop_shadows(self, *runs: str, **chosen: Any) -> list[DroppedShadow]:
        """Delete shadows of runs, or those chosen by ``older_than="30d", unpublished=True``.

        Files that production refers to stay with it. A shadow of another project goes only by its
        run and with ``foreign=True``. With ``dry_run=True`` nothing is changed.
        """
        from tidemill.review.shadows import drop_shadows

        return drop_shadows(self.loaded, self.registry, runs, **chosen)

    def gaps(self, pipeline: str, start: When, end: When, **options: Any) -> GapReport:
        """Where the archive has input and production has no output, or no run has covered it.

        Options are ``warm_up``, ``look_ahead``, ``params`` and ``spark``. Only metadata is read.
        """
        from tidemill.review.gaps import find_gaps

        return find_gaps(self.loaded, self.registry, pipeline, start, end, **options)

    def fillings(self, pipeline: str, start: When, end: When, **options: Any) -> list[Filling]:
        """A backfill for each gap, all planned and none begun; options are those of a backfill.

        ``project.backfill(pipeline, each.range.start, each.range.end, name=each.name)`` runs one,
        or goes on with it. With ``publishes=True`` a table that is not there, so that nothing could
        be published into it, is an error.
        """
        from tidemill.review.filling import find_fillings

        return find_fillings(self.loaded, self.registry, pipeline, start, end, **options)
