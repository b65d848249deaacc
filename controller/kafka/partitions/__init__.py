"""Handlers of partitions: failovers, elections, ISR changes and repairs."""
