"""The store of procedure records on a real ZooKeeper."""

from __future__ import annotations

from tests.contracts.records_zookeeper import ZooKeeperRecordsContract


class TestOnRealZooKeeper(ZooKeeperRecordsContract):
    """The contract."""
