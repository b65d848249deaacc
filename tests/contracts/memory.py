"""The in-memory ZooKeeper as a backend of the contract."""

from __future__ import annotations

from typing import Any

from metadata_store.errors import Code
from metadata_store.port import ZooKeeper
from testing.memory import MemoryServer, MemoryZooKeeper

FASTER = 5
"""Sessions end so much faster than on a real server."""


class MemoryBackend:
    """A server for the sessions of one test. ``lags``: each session is with a server that is behind."""

    def __init__(self, lags: bool = False) -> None:
        self.server = MemoryServer()
        self.server.lags = lags

    def client(self, down: bool = False, **options: Any) -> MemoryZooKeeper:
        self.server.down = down
        if "session_timeout_ms" in options:
            options["session_timeout_ms"] //= FASTER
        return MemoryZooKeeper(self.server, **options)

    def suspend(self, zk: ZooKeeper) -> None:
        self.server.suspend(zk.session_id)

    def cut_off(self, zk: ZooKeeper) -> None:
        self.server.cut_off(zk.session_id)

    def resume(self, zk: ZooKeeper) -> None:
        self.server.resume(zk.session_id)

    def lose_reply(self, zk: ZooKeeper) -> None:
        self.server.lose_replies(zk.session_id)

    def reply_with(self, zk: ZooKeeper, code: Code) -> None:
        self.server.reply_with(zk.session_id, code)

    async def expire(self, zk: ZooKeeper) -> None:
        self.server.expire(zk.session_id)
