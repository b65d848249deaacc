"""Simulated servers of a service with regions: the storage that they share, and ways in which they fail."""
