"""Counts and measures regions and their servers, and exposes that to Prometheus."""
