"""Plans of runs: the metadata of sources and the code are read, then `planning` decides."""
