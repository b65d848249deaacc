"""Controls a Kafka cluster: from the events of its brokers and znodes to the requests that brokers get."""
