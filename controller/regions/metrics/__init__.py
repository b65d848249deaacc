"""Metrics of regions, in the text format of Prometheus."""
