"""Runs durable procedures without I/O: their records, their tree, their locks and the order in which they run.

Stores and timers belong to their callers; nothing here awaits, and nothing reads a clock.
"""
