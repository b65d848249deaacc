"""Runs durable procedures: the engine, one instance for each domain, and the values that describe their kinds.

No kind lives here, and no code that knows Kafka or regions.
"""
