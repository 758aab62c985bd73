"""Stateful operators that obey the slicing law, used as ``df.transform(sessions(…))``."""
