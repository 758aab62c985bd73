"""The log's history: the Iceberg catalog, pins, and what metadata tells of a table."""
