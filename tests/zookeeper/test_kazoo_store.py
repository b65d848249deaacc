"""kazoo with a real server does what the contract says, with MultiRead and, as for old servers, without."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.conftest import ZooKeeperProcess
from tests.contracts.kafka import KafkaStoreContract
from tests.contracts.nodes import NodeContract
from tests.contracts.port import PortContract
from tests.zookeeper.real import RealBackend


@pytest.fixture
async def backend(zookeeper_process: ZooKeeperProcess, request: pytest.FixtureRequest) -> AsyncIterator[RealBackend]:
    options = getattr(request.cls, "options", {})
    found = RealBackend(zookeeper_process.address, zookeeper_process.new_chroot(), **options)
    await found.open()
    yield found
    await found.close()


class TestKazoo(PortContract):
    """The whole contract."""


class TestKazooWithoutMultiRead(NodeContract):
    """ZooKeeper before 3.6."""

    options = {"multi_read": False}


class TestKafkaStoreOnRealZooKeeper(KafkaStoreContract):
    """The store on it."""
