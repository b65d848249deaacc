"""The regions' domain on the ZooKeeper in memory."""

from __future__ import annotations

import pytest

from tests.contracts.memory import MemoryBackend
from tests.contracts.regions_zookeeper import ZooKeeperRegionsContract


class TestInMemory(ZooKeeperRegionsContract):
    """The contract."""

    @pytest.fixture
    def backend(self) -> MemoryBackend:
        return MemoryBackend()


class TestBehind(ZooKeeperRegionsContract):
    """The same with servers that are behind: each shows what the others wrote only after a sync."""

    @pytest.fixture
    def backend(self) -> MemoryBackend:
        return MemoryBackend(lags=True)
