"""Kafka: a cluster's controller, from the events of its brokers and znodes to the requests that brokers get."""
