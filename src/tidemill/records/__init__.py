"""Decode the records of a log: JSON, Avro, CSV, and the DDL of their columns."""
