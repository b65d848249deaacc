"""The regions' domain, its catalog and its claim on a real ZooKeeper."""

from __future__ import annotations

from tests.contracts.catalog_zookeeper import ZooKeeperCatalogContract
from tests.contracts.regions_zookeeper import ZooKeeperRegionsContract


class TestDomain(ZooKeeperRegionsContract):
    """The claim, the lease, and daemons that stand by."""


class TestCatalog(ZooKeeperCatalogContract):
    """The contract of catalogs."""
