"""Kafka's topics as sources: formats, decoding, dead letters."""
