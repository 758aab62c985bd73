"""Instances of a pipeline as its code sees them: rows are paired with those that they belong to."""

from tidemill.instances.instances import Instances

__all__ = ["Instances"]
