"""Kafka brokers on this machine, for examples and tests."""
