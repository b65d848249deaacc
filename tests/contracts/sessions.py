"""Contract of the port: connections, sessions and ephemerals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from metadata_store.errors import TROUBLE, Code, ConnectFailed, NotConnected, OutcomeUnknown, SessionLost
from metadata_store.port import ANY_VERSION, SetData
from tests.contracts.support import (
    CHILD,
    CONNECT_S,
    CONNECTED,
    DELETED,
    LOST,
    OPEN,
    SUSPENDED,
    Backend,
    Session,
    session,
)
from tests.kit.polling import eventually


class SessionContract:
    """Connections, sessions and ephemerals."""

    async def test_connect_begins_one_session_and_close_ends_it(self, backend: Backend) -> None:
        s = Session(backend.client())
        assert (s.zk.state, s.zk.session_id, s.zk.peer) == (LOST, 0, "")
        with pytest.raises(SessionLost):
            await s.zk.get("/")
        await s.zk.connect(CONNECT_S)
        first = s.zk.session_id
        assert s.zk.peer.rpartition(":")[2].isdecimal()
        assert (s.zk.state, s.states, first != 0) == (CONNECTED, [CONNECTED], True)
        assert s.zk.session_timeout_ms > 0
        await s.zk.connect(CONNECT_S)
        assert s.zk.session_id == first
        await s.zk.close()
        assert (s.zk.state, s.states) == (LOST, [CONNECTED])
        with pytest.raises(SessionLost):
            await s.zk.get("/")
        await s.zk.connect(CONNECT_S)
        assert s.zk.session_id not in (0, first)
        await s.zk.close()

    async def test_ephemerals_have_an_owner_and_end_with_its_session(self, backend: Backend) -> None:
        async with session(backend) as watcher:
            async with session(backend) as s:
                made = await s.zk.create("/e", b"", ephemeral=True)
                assert made.stat.ephemeral_owner == s.zk.session_id
                await watcher.zk.sync()
                await watcher.zk.watch(data=["/e"], children=["/"], since_zxid=watcher.zk.last_zxid)
            await watcher.saw(("/e", DELETED), ("/", CHILD))

    async def test_every_call_while_suspended_is_refused_and_never_sent_later(self, backend: Backend) -> None:
        async with session(backend) as s, session(backend) as other:
            await s.zk.create("/a", b"old")
            backend.suspend(s.zk)
            await s.reaches(SUSPENDED)
            assert s.zk.state is SUSPENDED
            calls = [
                s.zk.get("/a"),
                s.zk.read_many(["/a"]),
                s.zk.set("/a", b"new", 0),
                s.zk.multi([SetData("/a", b"new", 0)]),
                s.zk.watch(data=["/a"], since_zxid=0),
                s.zk.sync(),
                s.zk.heartbeat(),
                s.zk.set_acls("/a", OPEN, 0),
            ]
            for call in calls:
                with pytest.raises(NotConnected):
                    await call
            backend.resume(s.zk)
            await s.reaches(CONNECTED)
            await s.zk.sync()
            node = await other.node("/a")
            assert (node.data, node.stat.acl_version) == (b"old", 0)

    async def test_a_blip_keeps_session_and_ephemerals(self, backend: Backend) -> None:
        async with session(backend) as s:
            await s.zk.create("/e", b"", ephemeral=True)
            before = s.zk.session_id
            await s.reconnect(backend)
            assert (s.zk.session_id, s.zk.state) == (before, CONNECTED)
            assert (await s.node("/e")).stat.ephemeral_owner == before

    async def test_a_lost_connection_is_flagged_on_the_thread_before_the_loop(self, backend: Backend) -> None:
        async with session(backend) as s:
            s.calls.clear()
            backend.suspend(s.zk)
            await s.reaches(SUSPENDED)
            assert s.calls[:2] == [("thread", SUSPENDED), ("loop", SUSPENDED)]
            backend.resume(s.zk)
            await s.reaches(CONNECTED)

    async def test_an_expired_session_is_lost_for_good(self, backend: Backend) -> None:
        async with session(backend) as s:
            await s.zk.create("/e", b"", ephemeral=True)
            first = s.zk.session_id
            await backend.expire(s.zk)
            await s.reaches(SUSPENDED, LOST)
            assert s.zk.state is LOST
            with pytest.raises(SessionLost):
                await s.zk.exists("/e")
            with pytest.raises(SessionLost):
                await s.zk.create("/f", b"")
            await s.zk.connect(CONNECT_S)
            assert (s.zk.state, s.states[-1]) == (CONNECTED, CONNECTED)
            assert s.zk.session_id != first
            assert await s.zk.exists("/e") is None

    async def test_a_session_cut_off_beyond_its_time_out_is_lost_once_it_reaches_a_server(
        self, backend: Backend
    ) -> None:
        async with session(backend) as other, session(backend, session_timeout_ms=2_000) as s:
            await s.zk.create("/e", b"", ephemeral=True)
            backend.cut_off(s.zk)
            await s.reaches(SUSPENDED)
            assert await other.names("/") == ["e"], "its session lives on"

            async def gone() -> bool:
                return await other.names("/") == []

            await eventually(gone, within_s=20)
            assert (s.zk.state, s.states) == (SUSPENDED, [CONNECTED, SUSPENDED])
            backend.resume(s.zk)
            await s.reaches(SUSPENDED, LOST)
            with pytest.raises(SessionLost):
                await s.zk.exists("/e")
            await s.zk.connect(CONNECT_S)
            assert await s.zk.exists("/e") is None

    @pytest.mark.parametrize("code", sorted(TROUBLE))
    async def test_a_server_in_trouble_is_as_one_that_is_not_connected(self, backend: Backend, code: Code) -> None:
        """The request is fine and the connection stands, so the same request may succeed later."""
        async with session(backend) as s:
            made = await s.zk.create("/a", b"old")
            reads: list[Callable[[], Awaitable[object]]] = [
                s.zk.heartbeat,
                lambda: s.zk.exists("/a"),
                lambda: s.zk.read_many(["/a"]),
                lambda: s.zk.watch(data=["/a"], since_zxid=made.stat.czxid),
            ]
            for read in reads:
                backend.reply_with(s.zk, code)
                with pytest.raises(NotConnected, match=code.name):
                    await read()
            backend.reply_with(s.zk, code)
            with pytest.raises(NotConnected if code is Code.THROTTLED_OP else OutcomeUnknown, match=code.name):
                await s.zk.set("/a", b"new", ANY_VERSION)
            assert (s.zk.state, s.states) == (CONNECTED, [CONNECTED])
            await s.zk.heartbeat()
            assert await s.zk.exists("/a") is not None

    async def test_a_lost_reply_is_an_unknown_outcome(self, backend: Backend) -> None:
        async with session(backend) as s, session(backend) as other:
            await s.zk.create("/a", b"old")
            backend.lose_reply(s.zk)
            with pytest.raises(OutcomeUnknown):
                await s.zk.multi([SetData("/a", b"new", 0)])
            await s.reaches(SUSPENDED, CONNECTED)
            for reader in (s, other):
                node = await reader.node("/a")
                assert (node.data, node.stat.version) == (b"new", 1)

    async def test_a_connect_without_a_server_fails(self, backend: Backend) -> None:
        zk = backend.client(down=True)
        with pytest.raises(ConnectFailed, match="no ZooKeeper"):
            await zk.connect(1.0)
        assert zk.state is LOST
