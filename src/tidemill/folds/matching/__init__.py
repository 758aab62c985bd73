"""Folds that match rows of a key by their times: deduplication, attribution."""
