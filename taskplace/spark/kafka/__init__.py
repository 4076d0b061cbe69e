"""Kafka's topics as sources and sinks."""
