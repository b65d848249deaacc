"""Writes many znodes at once: partition states, topic assignments, creations and deletions of topics."""
