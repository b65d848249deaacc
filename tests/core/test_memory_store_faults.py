"""Faults that only the in-memory ZooKeeper can be given on purpose."""

from __future__ import annotations

import pytest

from metadata_store.errors import NotConnected, OutcomeUnknown
from metadata_store.port import ANY_VERSION, Create, Delete, SetData, WatchEvent, WatchKind, ZooKeeper
from testing.memory import MemoryServer, MemoryZooKeeper
from tests.contracts.support import CONNECTED, LOST, SUSPENDED, Session


async def connected(server: MemoryServer) -> Session:
    found = Session(MemoryZooKeeper(server))
    await found.zk.connect(1)
    return found


async def test_watch_events_can_be_held_back() -> None:
    server = MemoryServer()
    s = await connected(server)
    await s.zk.create("/a", b"")
    await s.zk.watch(data=["/a"], children=["/"], since_zxid=s.zk.last_zxid)
    server.hold_watches(s.zk.session_id)
    await s.zk.set("/a", b"x", 0)
    await s.zk.create("/b", b"")
    await s.quiet()
    server.release_watches(s.zk.session_id)
    await s.zk.sync()
    assert s.events == [WatchEvent("/a", WatchKind.CHANGED), WatchEvent("/", WatchKind.CHILD)]


async def test_events_held_back_are_lost_with_the_connection() -> None:
    server = MemoryServer()
    s = await connected(server)
    await s.zk.create("/a", b"")
    await s.zk.watch(data=["/a"], since_zxid=s.zk.last_zxid)
    server.hold_watches(s.zk.session_id)
    await s.zk.set("/a", b"x", 0)
    server.blip(s.zk.session_id)
    server.release_watches(s.zk.session_id)
    await s.reaches(SUSPENDED, CONNECTED)
    await s.quiet()


async def test_a_lost_request_is_as_unknown_as_a_lost_reply() -> None:
    server = MemoryServer()
    s = await connected(server)
    server.lose_requests(s.zk.session_id)
    with pytest.raises(OutcomeUnknown):
        await s.zk.create("/lost", b"")
    server.lose_replies(s.zk.session_id, writes=2)
    for path in ("/applied", "/applied"):
        with pytest.raises(OutcomeUnknown):
            await s.zk.create(path, b"")
    assert await s.zk.exists("/lost") is None
    assert await s.zk.exists("/applied") is not None
    assert s.states == [CONNECTED, *[SUSPENDED, CONNECTED] * 3]


async def test_a_blip_is_over_only_when_it_has_been_told() -> None:
    server = MemoryServer()
    s = await connected(server)
    server.blip(s.zk.session_id)
    assert s.zk.state is SUSPENDED
    with pytest.raises(NotConnected):
        await s.zk.get("/")
    await s.reaches(SUSPENDED, CONNECTED)
    assert s.zk.state is CONNECTED


async def test_an_expired_session_is_seen_by_the_others() -> None:
    server = MemoryServer()
    s, other = await connected(server), await connected(server)
    await s.zk.create("/e", b"", ephemeral=True)
    await other.zk.watch(data=["/e"], since_zxid=s.zk.last_zxid)
    server.expire(s.zk.session_id)
    await other.saw(("/e", WatchKind.DELETED))
    assert s.states[-2:] == [SUSPENDED, LOST]


async def test_a_session_that_expires_while_suspended() -> None:
    server = MemoryServer()
    s = await connected(server)
    server.suspend(s.zk.session_id)
    await s.reaches(SUSPENDED)
    server.expire(s.zk.session_id)
    await s.reaches(SUSPENDED, LOST)


async def test_the_same_story_gives_the_same_trace() -> None:
    async def story() -> list[object]:
        server = MemoryServer()
        s, other = await connected(server), await connected(server)
        for n in range(5):
            await s.zk.create(f"/n{n}", b"", ephemeral=n % 2 == 0)
        await other.zk.watch(data=[f"/n{n}" for n in (3, 0, 4)], children=["/"], since_zxid=other.zk.last_zxid)
        await s.zk.multi([Delete("/n0", 0), SetData("/n3", b"x", 0), Create("/q", b"", sequential=True)])
        server.expire(s.zk.session_id)
        await other.zk.sync()
        root = await other.zk.children("/")
        return [other.events, root, s.states, other.zk.last_zxid, other.zk.session_id]

    assert await story() == await story()


async def test_a_session_whose_loop_does_other_things_gets_its_events_in_order() -> None:
    server = MemoryServer()
    s, other = await connected(server), await connected(server)
    await other.zk.create("/a", b"")
    order: list[str] = []
    s.zk.on_watch = lambda event: order.append(event.kind.value)
    await s.zk.sync()
    await s.zk.watch(data=["/a"], since_zxid=s.zk.last_zxid)
    await other.zk.set("/a", b"x", ANY_VERSION)
    assert await s.zk.exists("/a") is not None
    order.append("answer")
    assert order == ["changed", "answer"]


def test_it_is_a_zookeeper_port() -> None:
    zk: ZooKeeper = MemoryZooKeeper(MemoryServer())
    assert zk.state is LOST
