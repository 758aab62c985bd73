"""How the rows of two places differ: which, in what, when, and why."""
