"""Files that are read on request: a log of requests, and the files that they name."""
