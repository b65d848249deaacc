"""Contract of the port: connections, sessions, ephemerals and watches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from metadata_store.errors import TROUBLE, Code, ConnectFailed, MultiFailed, NotConnected, OutcomeUnknown, SessionLost
from metadata_store.port import ANY_VERSION, Check, Create, Delete, SetData, WatchEvent
from tests.contracts.support import (
    CHANGED,
    CHILD,
    CONNECT_S,
    CONNECTED,
    CREATED,
    DELETED,
    LOST,
    OPEN,
    SUSPENDED,
    Backend,
    Session,
    session,
)
from tests.kit.deadlines import eventually


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
        async with session(backend) as other, session(backend, session_timeout_ms=5_000) as s:
            await s.zk.create("/e", b"", ephemeral=True)
            backend.cut_off(s.zk)
            await s.reaches(SUSPENDED)
            assert await other.names("/") == ["e"], "its session lives on"

            async def gone() -> bool:
                return await other.names("/") == []

            await eventually(gone)
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


class WatchContract:
    """One-shot watches, armed in bulk."""

    async def test_each_kind_fires_once(self, backend: Backend) -> None:
        async with session(backend) as s, session(backend) as other:
            await other.zk.create("/data", b"")
            await other.zk.create("/parent", b"")
            await other.zk.create("/doomed", b"")
            await s.zk.sync()
            since = s.zk.last_zxid
            await s.zk.watch(data=["/data", "/doomed"], exists=["/later"], children=["/parent"], since_zxid=since)
            await s.quiet()
            for n in range(3):
                await other.zk.set("/data", b"x", n)
                await other.zk.create(f"/parent/{n}", b"")
            await other.zk.create("/later", b"")
            await other.zk.set("/later", b"x", 0)
            await other.zk.delete("/doomed", 0)
            await s.saw(("/data", CHANGED), ("/doomed", DELETED), ("/later", CREATED), ("/parent", CHILD))
            await s.quiet()

    async def test_what_changed_since_fires_at_once(self, backend: Backend) -> None:
        async with session(backend) as s:
            for path in ("/old", "/old-parent", "/new", "/parent", "/doomed"):
                await s.zk.create(path, b"")
            since = s.zk.last_zxid
            await s.zk.set("/new", b"x", 0)
            await s.zk.create("/parent/child", b"")
            await s.zk.delete("/doomed", 0)
            await s.zk.watch(
                data=["/old", "/new", "/doomed", "/never"],
                exists=["/old", "/absent"],
                children=["/parent", "/old-parent", "/never-parent"],
                since_zxid=since,
            )
            fired = [
                ("/new", CHANGED),
                ("/doomed", DELETED),
                ("/never", DELETED),
                ("/old", CREATED),
                ("/parent", CHILD),
                ("/never-parent", DELETED),
            ]
            await s.saw(*fired)
            await s.zk.set("/old", b"x", 0)
            await s.zk.create("/absent", b"")
            await s.zk.create("/old-parent/child", b"")
            await s.saw(("/old", CHANGED), ("/absent", CREATED), ("/old-parent", CHILD))

    async def test_a_new_session_sees_no_event_of_what_was_there_before(self, backend: Backend) -> None:
        async with session(backend) as other:
            await other.zk.create("/a", b"")
            async with session(backend) as s:
                await s.zk.watch(data=["/a"], children=["/"], since_zxid=s.zk.last_zxid)
                await s.quiet()

    async def test_a_deleted_znode_fires_one_event_though_two_watches_or_a_new_znode_are_there(
        self, backend: Backend
    ) -> None:
        async with session(backend) as s:
            for path in ("/a", "/controller"):
                await s.zk.create(path, b"", ephemeral=True)
            await s.zk.watch(data=["/a", "/controller"], children=["/a", "/"], since_zxid=s.zk.last_zxid)
            await s.zk.delete("/a", 0)
            await s.zk.multi([Delete("/controller", 0), Create("/controller", b"daemon")])
            await s.saw(("/a", DELETED), ("/", CHILD), ("/controller", DELETED))
            await s.quiet()

    async def test_a_failed_multi_fires_nothing(self, backend: Backend) -> None:
        async with session(backend) as s:
            await s.zk.create("/a", b"")
            await s.zk.watch(data=["/a"], children=["/"], since_zxid=s.zk.last_zxid)
            with pytest.raises(MultiFailed):
                await s.zk.apply([SetData("/a", b"x", 0), Create("/b", b""), Check("/a", 0)])
            await s.quiet()

    async def test_an_event_comes_before_the_reply_that_shows_its_change(self, backend: Backend) -> None:
        async with session(backend) as s, session(backend) as other:
            await other.zk.create("/a", b"old")
            await s.zk.sync()
            await s.zk.watch(data=["/a"], since_zxid=s.zk.last_zxid)
            await other.zk.set("/a", b"new", 0)
            assert (await s.data("/a"), s.events) == (b"new", [WatchEvent("/a", CHANGED)])

    async def test_arming_again_while_an_event_is_under_way_loses_nothing(self, backend: Backend) -> None:
        async with session(backend) as s, session(backend) as other:
            await other.zk.create("/a", b"")
            await s.zk.sync()
            for n in range(10):
                since = s.zk.last_zxid
                await s.zk.watch(data=["/a"], since_zxid=since)
                await asyncio.gather(other.zk.set("/a", b"x", n), s.zk.watch(data=["/a"], since_zxid=since))
                await s.zk.sync()
                assert WatchEvent("/a", CHANGED) in s.events
                s.events.clear()

    async def test_a_blip_drops_all_watches_and_arming_again_fires_those_of_missed_changes(
        self, backend: Backend
    ) -> None:
        async with session(backend) as s, session(backend) as other:
            await other.zk.create("/missed", b"")
            await other.zk.create("/kept", b"")
            await s.zk.sync()
            since = s.zk.last_zxid
            await s.zk.watch(data=["/missed", "/kept"], since_zxid=since)
            backend.suspend(s.zk)
            await s.reaches(SUSPENDED)
            await other.zk.set("/missed", b"x", 0)
            backend.resume(s.zk)
            await s.reaches(CONNECTED)
            await s.quiet()
            await s.zk.watch(data=["/missed", "/kept"], since_zxid=since)
            await s.saw(("/missed", CHANGED))
            await other.zk.set("/kept", b"x", 0)
            await s.saw(("/kept", CHANGED))
