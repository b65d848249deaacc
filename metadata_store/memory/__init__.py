"""ZooKeeper in memory: one shared tree, many sessions, faults on request. For tests and simulation."""

from metadata_store.memory.client import MemoryZooKeeper
from metadata_store.memory.server import MemoryServer

__all__ = ["MemoryServer", "MemoryZooKeeper"]
