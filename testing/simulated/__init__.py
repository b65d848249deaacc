"""Simulates brokers that respond to a controller as Kafka 3.9 brokers in ZooKeeper mode do, and host nothing."""
