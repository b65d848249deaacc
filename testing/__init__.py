"""Provides stand-ins for the demo, tests and benchmarks: real servers, simulated brokers, a tree in memory.

The daemon never imports it.
"""
