"""When a run is no longer wanted: what it owns, and how it is forgotten."""
