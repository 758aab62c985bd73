"""Decisions: statistics and values in, values out. No I/O, no Spark."""
