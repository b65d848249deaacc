"""Holds ZooKeeper in memory, for tests and simulation: one shared tree, many sessions, faults on request."""

from testing.memory.client import MemoryZooKeeper
from testing.memory.server import MemoryServer

__all__ = ["MemoryServer", "MemoryZooKeeper"]
