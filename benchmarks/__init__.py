"""Measures regent beside Kafka's own controller, and alone where there is no peer."""
