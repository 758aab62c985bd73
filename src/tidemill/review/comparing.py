"""Compare the outputs of a run with production, with another table or with another run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemill.review.comparison import Comparison

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig
    from tidemill.runtime.registry import Registry


@dataclass(frozen=True)
class CompareRequest:
    """What is asked of a comparison."""

    run: str

    @classmethod
    def of(cls, run: str, **options: Any) -> CompareRequest:
        """The request of these options."""
        return cls(run, **options)


def compare_run(loaded: LoadedConfig, registry: Registry, asked: CompareRequest) -> Comparison:
    """Compare; reads tables only."""
    raise NotImplementedError
