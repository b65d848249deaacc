"""Plays ``regent demo``: a real cluster on this machine whose controller is regent, and what it survives."""
