"""Serves the daemon's HTTP surface: a unix socket, and optionally HTTP over TCP in a thread of its own."""
