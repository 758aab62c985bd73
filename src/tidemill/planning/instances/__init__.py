"""Instances of a pipeline: their values, and what of their table can be used."""
