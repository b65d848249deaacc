"""Counters and gauges, and their exposition to Prometheus. It knows no daemon, only plain structs of values."""
