"""Archives: the history of a stream."""
