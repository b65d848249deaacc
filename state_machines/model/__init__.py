"""Models the cluster in memory: rows of partitions, topics, brokers, and the values that decisions are made of."""
