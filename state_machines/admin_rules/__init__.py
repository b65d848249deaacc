"""Judges admin requests: validation, placement, quotas and access control, as Kafka's brokers apply them."""
