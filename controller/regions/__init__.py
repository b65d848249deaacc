"""Assigns regions to the servers of a service: a domain of its own, with its own claim, engine and store.

It shares no term, draft or channel with the Kafka role, outlives a hand-back, and runs where there is no Kafka.
"""
