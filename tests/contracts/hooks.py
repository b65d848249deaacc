"""Contract of the port: faults injected around writes."""

from __future__ import annotations

import asyncio

import pytest

from metadata_store.errors import OutcomeUnknown, SessionLost
from metadata_store.hooks import Kill
from metadata_store.port import Check, Create, Delete
from tests.contracts.support import LOST, OPEN, Backend, NthWrite, raising, session
from tests.kit.polling import eventually


class HookContract:
    """Faults injected around writes."""

    async def test_a_kill_before_a_write_writes_nothing(self, backend: Backend) -> None:
        async with session(backend) as s:
            for write in (lambda: s.zk.create("/a", b""), lambda: s.zk.multi([Create("/a", b"")])):
                s.zk.hooks = NthWrite(at=0, before=raising(Kill()))
                with pytest.raises(Kill):
                    await write()
            assert await s.zk.exists("/a") is None

    async def test_a_reply_lost_after_the_write_leaves_it_applied(self, backend: Backend) -> None:
        async with session(backend) as s:
            s.zk.hooks = NthWrite(at=0, after=OutcomeUnknown("lost"))
            with pytest.raises(OutcomeUnknown):
                await s.zk.apply([Create("/a", b"")])
            assert await s.zk.exists("/a") is not None

    async def test_every_kind_of_write_passes_the_hooks_and_no_read_does(self, backend: Backend) -> None:
        async with session(backend) as s:
            hooks = s.zk.hooks = NthWrite(at=-1)
            await s.zk.create("/a", b"")
            await s.zk.set("/a", b"x", 0)
            await s.zk.set_acls("/a", OPEN, 0)
            await s.zk.get("/a")
            await s.zk.read_many(["/a"])
            await s.zk.apply([Check("/a", 1)])
            await s.zk.multi([Delete("/a", 1)])
            kinds = [[type(op).__name__ for op in ops] for ops in hooks.writes]
            assert kinds == [["Create"], ["SetData"], ["SetAcls"], ["Check"], ["Delete"]]

    async def test_a_write_held_back_over_a_blip_is_sent_and_over_an_expiry_refused(self, backend: Backend) -> None:
        async with session(backend) as s:
            gate = asyncio.Event()
            hooks = s.zk.hooks = NthWrite(at=0, before=gate.wait)
            write = asyncio.create_task(s.zk.create("/a", b""))
            await eventually(lambda: hooks.writes)
            await s.reconnect(backend)
            gate.set()
            assert (await write).path == "/a"
            gate.clear()
            hooks = s.zk.hooks = NthWrite(at=0, before=gate.wait)
            write = asyncio.create_task(s.zk.create("/b", b""))
            await eventually(lambda: hooks.writes)
            await backend.expire(s.zk)
            await s.reaches(LOST)
            gate.set()
            with pytest.raises(SessionLost):
                await write
