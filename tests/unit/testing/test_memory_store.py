"""The in-memory ZooKeeper does what a real one does."""

from __future__ import annotations

import pytest

from tests.contracts.kafka import KafkaStoreContract
from tests.contracts.memory import MemoryBackend
from tests.contracts.port import PortContract


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> MemoryBackend:
    return MemoryBackend(getattr(request.cls, "lags", False))


class TestMemory(PortContract):
    """The port."""


class TestKafkaStoreInMemory(KafkaStoreContract):
    """The store on it."""


class TestMemoryWithLaggingServers(PortContract):
    """The port, each session with a server that is behind."""

    lags = True


class TestKafkaStoreWithLaggingServers(KafkaStoreContract):
    """The store, each session with a server that is behind."""

    lags = True
