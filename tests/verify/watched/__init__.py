"""regent as Prometheus sees it: a real Prometheus, a real cluster and real faults."""
