"""A Kafka topic as a live log."""
