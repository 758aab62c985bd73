"""Kafka topics as sinks: messages with ids."""
