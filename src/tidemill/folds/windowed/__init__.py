"""Folds over fixed windows: aggregates, unique counts, top n."""
