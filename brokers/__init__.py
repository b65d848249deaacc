"""Connects the daemon and Kafka brokers: requests to them, the listener for theirs, and the wire format."""
