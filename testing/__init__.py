"""Stand-ins that the demo, tests and benchmarks share: real servers, simulated brokers, a tree in memory.

The daemon never imports it.
"""
