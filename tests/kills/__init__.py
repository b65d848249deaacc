"""Procedures whose daemon is killed before and after each write of their store."""
