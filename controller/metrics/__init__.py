"""Counters and gauges, and their exposition to Prometheus. It knows no daemon: values come in as plain structs."""
