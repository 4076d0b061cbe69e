"""Kafka Streams and taskplace beside each other: one topology, one broker, the same measurements."""
