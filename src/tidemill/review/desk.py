"""What can be done with the output of a run: compare it with other rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.requests import When
    from tidemill.review.comparison import Comparison
    from tidemill.review.filling import Filling
    from tidemill.review.gaps import GapReport
    from tidemill.runtime.registry import Registry


class ReviewDesk:
    """The review of a project's runs. No Spark is started."""

    def __init__(self, loaded: LoadedConfig, registry: Registry) -> None:
        """Nothing is opened yet."""
        self.loaded, self.registry = loaded, registry

    def compare(self, run: str, **options: Any) -> Comparison:
        """How the rows of a run differ from production's, or from those of a table or a run.

        Options are the fields of :class:`~tidemill.review.comparing.CompareRequest`: ``with_``,
        ``key``, ``tolerance``, ``ignore``, ``outputs``.
        """
        from tidemill.review.comparing import CompareRequest, compare_run

        return compare_run(self.loaded, self.registry, CompareRequest.of(run, **options))

    def gaps(self, pipeline: str, start: When, end: When, **options: Any) -> GapReport:
        """Where the archive has input and production has no output, or no run has covered it.

        Options are ``warm_up``, ``look_ahead``, ``params`` and ``spark``. Only metadata is read.
        """
        from tidemill.review.gaps import find_gaps

        return find_gaps(self.loaded, self.registry, pipeline, start, end, **options)

    def fillings(self, pipeline: str, start: When, end: When, **options: Any) -> list[Filling]:
        """A backfill for each gap, all planned and none begun; options are those of a backfill.

        ``project.backfill(pipeline, each.range.start, each.range.end, name=each.name)`` runs one,
        or goes on with it.
        """
        from tidemill.review.filling import find_fillings

        return find_fillings(self.loaded, self.registry, pipeline, start, end, **options)
