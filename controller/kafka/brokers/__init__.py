"""Handles events of brokers: their arrivals and ends, log directories, settings, marks, and repaired state znodes."""
