"""Folds that users write: a class with ``on_row`` and ``on_timer``, or a function on frames."""
