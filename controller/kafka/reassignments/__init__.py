"""Handles reassignments, by calls and by the znode."""
