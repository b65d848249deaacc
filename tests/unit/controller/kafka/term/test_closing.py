"""Closing on the ZooKeeper in memory."""

from __future__ import annotations

import pytest

from tests.contracts.closing import ClosingContract
from tests.contracts.memory import MemoryBackend


class TestInMemory(ClosingContract):
    """The contract."""

    @pytest.fixture
    def backend(self) -> MemoryBackend:
        return MemoryBackend()
