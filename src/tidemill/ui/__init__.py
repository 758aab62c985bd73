"""The page: a second face of what `project` does, for a browser on the same machine."""
