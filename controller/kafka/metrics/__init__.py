"""Counts and measures the controller of a Kafka cluster, and exposes that to Prometheus."""
