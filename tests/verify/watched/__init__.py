"""Watches regent by a real Prometheus, on a real cluster with real faults."""
