"""Folds over fixed windows: aggregates, unique counts, the largest."""
