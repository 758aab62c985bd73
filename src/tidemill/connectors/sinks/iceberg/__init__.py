"""Iceberg tables as sinks: files that the driver commits once per batch."""
