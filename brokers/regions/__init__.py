"""Serves the servers and clients of a service that has regions assigned; the protocol is ``regent_agent.protocol``."""
