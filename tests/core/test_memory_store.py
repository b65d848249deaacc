"""The in-memory ZooKeeper does what a real one does."""

from __future__ import annotations

from typing import Any

import pytest

from metadata_store.errors import Code
from metadata_store.port import ZooKeeper
from testing.memory import MemoryServer, MemoryZooKeeper
from tests.contracts.kafka import KafkaStoreContract
from tests.contracts.port import PortContract


class MemoryBackend:
    def __init__(self) -> None:
        self.server = MemoryServer()

    def client(self, down: bool = False, **options: Any) -> MemoryZooKeeper:
        self.server.down = down
        return MemoryZooKeeper(self.server, **options)

    def suspend(self, zk: ZooKeeper) -> None:
        self.server.suspend(zk.session_id)

    def resume(self, zk: ZooKeeper) -> None:
        self.server.resume(zk.session_id)

    def lose_reply(self, zk: ZooKeeper) -> None:
        self.server.lose_replies(zk.session_id)

    def reply_with(self, zk: ZooKeeper, code: Code) -> None:
        self.server.reply_with(zk.session_id, code)

    async def expire(self, zk: ZooKeeper) -> None:
        self.server.expire(zk.session_id)


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


class TestMemory(PortContract):
    """The port."""


class TestKafkaStoreInMemory(KafkaStoreContract):
    """The store on it."""
