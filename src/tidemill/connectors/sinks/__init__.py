"""Sinks: where the rows of an output go."""
