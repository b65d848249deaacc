"""Handles events of partitions: ISR changes, elections, controlled shutdowns, the automatic balance, and repairs."""
