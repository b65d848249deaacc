"""Measures the assignment of regions: a daemon in one process, simulated servers on real sockets in another."""
