"""The store of procedure records on a real ZooKeeper."""

from __future__ import annotations

import pytest

from tests.contracts.records_damaged import DamagedContract
from tests.contracts.records_zookeeper import ZooKeeperRecordsContract, ZooKeeperShelf
from tests.contracts.support import Backend


class TestOnRealZooKeeper(ZooKeeperRecordsContract):
    """The contract."""


class TestDamagedOnRealZooKeeper(DamagedContract):
    """The contract of damaged stores."""

    samples = 2

    @pytest.fixture
    def shelf(self, backend: Backend) -> ZooKeeperShelf:
        return ZooKeeperShelf(backend)
