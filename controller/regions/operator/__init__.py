"""Gives operators their view of regions, and takes their requests: on the active daemon; others say where it stands."""
