"""Counts, measures and exposes to Prometheus. It knows no daemon, only plain structs of values."""
