"""The pipeline's code: load it, analyse it, and check that it still does what was planned."""
