"""Handlers of reassignments, by calls and by the znode."""
