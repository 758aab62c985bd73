"""Live logs: what a stream gets now."""
