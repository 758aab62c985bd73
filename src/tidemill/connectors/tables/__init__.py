"""Reference tables: Iceberg, Parquet and CSV, read whole when a run is planned and started."""
