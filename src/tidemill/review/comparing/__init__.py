"""How the rows of two places differ: which, in what, when, and why."""

from tidemill.review.comparing.run import CompareRequest, compare_run

__all__ = ["CompareRequest", "compare_run"]
