"""Records of a log, decoded: DDL, JSON, Avro, CSV."""
