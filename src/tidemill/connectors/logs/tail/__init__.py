"""The growing end of an Iceberg table as a live log: its YAML section, the driver, slices."""
