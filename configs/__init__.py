"""Typed settings and the files that people install."""
