"""A run while it runs: the query, its batches and their commits, how it ends."""
