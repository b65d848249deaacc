"""Rows of the journal about partitions, brokers and requests."""
