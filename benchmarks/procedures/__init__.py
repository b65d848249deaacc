"""Benchmarks of procedures: scheduler, stores and engine beside HBase's own tools; plans, failovers and calls.

``python -m benchmarks.procedures`` (``make bench-procedures``) runs all of them in about a quarter of an hour.
"""
