"""Handles reassignments, by calls and by the znode, and the replicas that they leave on brokers that were away."""
