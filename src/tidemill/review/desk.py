"""What can be done with the output of a run: compare it with other rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig
    from tidemill.review.comparison import Comparison
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
