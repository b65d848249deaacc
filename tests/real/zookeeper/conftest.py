"""The real ZooKeeper as a backend of the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.conftest import ZooKeeperProcess
from tests.real.zookeeper.real import RealBackend


@pytest.fixture
async def backend(zookeeper_process: ZooKeeperProcess, request: pytest.FixtureRequest) -> AsyncIterator[RealBackend]:
    """Sessions on a chroot of their own, with the ``options`` of the test's class."""
    options = getattr(request.cls, "options", {})
    found = RealBackend(zookeeper_process.address, zookeeper_process.new_chroot(), **options)
    await found.open()
    yield found
    await found.close()
