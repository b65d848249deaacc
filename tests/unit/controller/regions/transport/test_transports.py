"""Both transports on the ZooKeeper in memory."""

from __future__ import annotations

import pytest

from tests.contracts.memory import MemoryBackend
from tests.contracts.regions_presence import PresenceContract
from tests.contracts.regions_rights import RightsContract
from tests.contracts.regions_transports import NodesContract, TransportsContract


class TestInMemory(TransportsContract, NodesContract, PresenceContract, RightsContract):
    """The contract."""

    @pytest.fixture
    def backend(self) -> MemoryBackend:
        return MemoryBackend()
