"""Iceberg tables and their catalog: metadata, transactions, data files. No streams, no runs."""
