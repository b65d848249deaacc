"""The store of procedure records on the in-memory ZooKeeper."""

from __future__ import annotations

import pytest

from tests.contracts.memory import MemoryBackend
from tests.contracts.records_zookeeper import ZooKeeperRecordsContract


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


class TestInMemory(ZooKeeperRecordsContract):
    """The contract."""
