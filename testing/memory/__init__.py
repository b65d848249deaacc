"""Holds ZooKeeper in memory: one shared tree, many sessions, faults on request. For tests and simulation."""

from testing.memory.client import MemoryZooKeeper
from testing.memory.server import MemoryServer

__all__ = ["MemoryServer", "MemoryZooKeeper"]
