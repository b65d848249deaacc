"""Contract of the port: faults injected around writes."""

from __future__ import annotations

import asyncio

import pytest

from metadata_store.acl import ALL, Acl
from metadata_store.errors import (
    OutcomeUnknown,
    SessionLost,
)
from metadata_store.hooks import Kill
from metadata_store.port import (
    Check,
    Create,
    Delete,
)
from tests.contracts.support import (
    CONNECTED,
    LOST,
    SUSPENDED,
    Backend,
    Hooks,
    session,
)
from tests.polling import eventually


class HookContract:
    """Faults injected around writes."""

    async def test_killed_before_the_write_nothing_is_written(self, backend: Backend) -> None:
        hooks = Hooks()
        async with session(backend) as s:
            s.zk.hooks = hooks
            hooks.raises_before = Kill()
            with pytest.raises(Kill):
                await s.zk.create("/a", b"")
            with pytest.raises(Kill):
                await s.zk.multi([Create("/a", b"")])
            s.zk.hooks = None
            assert await s.zk.exists("/a") is None

    async def test_reply_lost_after_the_write(self, backend: Backend) -> None:
        hooks = Hooks()
        async with session(backend) as s:
            s.zk.hooks = hooks
            hooks.raises_after = OutcomeUnknown("lost")
            with pytest.raises(OutcomeUnknown):
                await s.zk.apply([Create("/a", b"")])
            assert await s.zk.exists("/a") is not None

    async def test_every_kind_of_write_passes_the_hooks_and_no_read_does(self, backend: Backend) -> None:
        hooks = Hooks()
        async with session(backend) as s:
            s.zk.hooks = hooks
            await s.zk.create("/a", b"")
            await s.zk.set("/a", b"x", 0)
            await s.zk.set_acls("/a", [Acl(ALL, "world", "anyone")], 0)
            await s.zk.get("/a")
            await s.zk.read_many(["/a"])
            await s.zk.apply([Check("/a", 1)])
            await s.zk.multi([Delete("/a", 1)])
            assert [[type(op).__name__ for op in ops] for ops in hooks.seen] == [
                ["Create"],
                ["SetData"],
                ["SetAcls"],
                ["Check"],
                ["Delete"],
            ]

    async def test_a_write_held_back_over_a_blip_is_still_sent_and_over_an_expiry_is_not(
        self, backend: Backend
    ) -> None:
        hooks = Hooks()
        async with session(backend) as s:
            s.zk.hooks = hooks
            hooks.gate = asyncio.Event()
            write = asyncio.create_task(s.zk.create("/a", b""))
            await eventually(lambda: hooks.seen)
            backend.suspend(s.zk)
            backend.resume(s.zk)
            await s.reaches(SUSPENDED, CONNECTED)
            hooks.gate.set()
            assert (await write).path == "/a"
            hooks.gate = asyncio.Event()
            write = asyncio.create_task(s.zk.create("/b", b""))
            await eventually(lambda: len(hooks.seen) == 2)
            await backend.expire(s.zk)
            await s.reaches(LOST)
            hooks.gate.set()
            with pytest.raises(SessionLost):
                await write
