"""Holds the partition and replica state machines as tables, and the leader selectors that they call."""
