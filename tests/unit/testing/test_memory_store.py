"""The in-memory ZooKeeper does what a real one does, with the faults that a test switches on."""

from __future__ import annotations

import asyncio

import pytest

from metadata_store.errors import Code, ConnectFailed, NotConnected, OutcomeUnknown, SessionLost
from metadata_store.port import ANY_VERSION, Create, Delete, SetData, WatchEvent, WatchKind
from testing.memory import MemoryServer, MemoryZooKeeper
from tests.contracts.kafka import KafkaStoreContract
from tests.contracts.memory import MemoryBackend
from tests.contracts.port import PortContract
from tests.contracts.support import CHANGED, CHILD, CONNECTED, DELETED, LOST, SUSPENDED, Session
from tests.kit.deadlines import in_exact_time


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


async def connected(server: MemoryServer, session_timeout_ms: int = 6_000) -> Session:
    found = Session(MemoryZooKeeper(server, session_timeout_ms=session_timeout_ms))
    await found.zk.connect(1)
    return found


# -- watches and connections


@pytest.mark.parametrize("blip", [False, True])
async def test_held_watch_events_are_delivered_on_release_or_lost_with_the_connection(blip: bool) -> None:
    server = MemoryServer()
    s = await connected(server)
    await s.zk.create("/a", b"")
    await s.zk.watch(data=["/a"], children=["/"], since_zxid=s.zk.last_zxid)
    server.hold_watches(s.zk.session_id)
    await s.zk.set("/a", b"x", 0)
    await s.zk.create("/b", b"")
    await s.quiet()
    if blip:
        server.reconnect(s.zk.session_id)
        await s.reaches(SUSPENDED, CONNECTED)
    server.release_watches(s.zk.session_id)
    await s.zk.sync()
    assert s.events == ([] if blip else [WatchEvent("/a", CHANGED), WatchEvent("/", CHILD)])


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
    assert await s.names("/") == ["applied"]
    assert s.states == [CONNECTED, *[SUSPENDED, CONNECTED] * 3]


async def test_a_connection_is_back_only_once_its_state_was_reported() -> None:
    server = MemoryServer()
    s = await connected(server)
    server.reconnect(s.zk.session_id)
    assert s.zk.state is SUSPENDED
    with pytest.raises(NotConnected):
        await s.zk.get("/")
    await s.reaches(SUSPENDED, CONNECTED)
    assert s.zk.state is CONNECTED


@pytest.mark.parametrize("suspended", [False, True])
async def test_an_expired_session_is_suspended_first_and_other_sessions_see_its_end(suspended: bool) -> None:
    server = MemoryServer()
    s, other = await connected(server), await connected(server)
    await s.zk.create("/e", b"", ephemeral=True)
    await other.zk.watch(data=["/e"], since_zxid=s.zk.last_zxid)
    if suspended:
        server.suspend(s.zk.session_id)
        await s.reaches(SUSPENDED)
    server.expire(s.zk.session_id)
    await other.saw(("/e", DELETED))
    assert s.states == [CONNECTED, SUSPENDED, LOST]


async def test_a_lost_session_has_no_successor_while_the_server_is_down() -> None:
    server = MemoryServer()
    s = await connected(server)
    server.expire(s.zk.session_id)
    server.down = True
    for _ in range(3):
        with pytest.raises(ConnectFailed):
            await s.zk.connect(1)
        with pytest.raises(SessionLost):
            await s.zk.sync()
    server.down = False
    await s.zk.connect(1)
    assert s.zk.state is CONNECTED


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
        return [other.events, await other.zk.children("/"), s.states, other.zk.last_zxid, other.zk.session_id]

    assert await story() == await story()


# -- sessions that end late


@pytest.mark.parametrize("away_s", [5.9, 6.1])
@in_exact_time
async def test_a_session_cut_off_ends_at_its_time_out(away_s: float) -> None:
    server = MemoryServer()
    s, other = await connected(server), await connected(server)
    await s.zk.create("/e", b"", ephemeral=True)
    server.cut_off(s.zk.session_id)
    await asyncio.sleep(away_s)
    ended = away_s > 6.0
    assert await other.names("/") == ([] if ended else ["e"])
    assert s.zk.state is SUSPENDED, "its client cannot know"
    server.resume(s.zk.session_id)
    await s.reaches(SUSPENDED, LOST if ended else CONNECTED)
    await asyncio.sleep(10.0)
    assert await other.names("/") == ([] if ended else ["e"])


@pytest.mark.parametrize("closes", [False, True])
@in_exact_time
async def test_the_session_of_a_dead_or_unreachable_client_lives_until_its_time_out(closes: bool) -> None:
    server = MemoryServer()
    s, other = await connected(server, 4_000), await connected(server)
    await s.zk.create("/e", b"", ephemeral=True)
    await s.zk.watch(data=["/e"], since_zxid=s.zk.last_zxid)
    if closes:
        server.cut_off(s.zk.session_id)
        await s.zk.close()
    else:
        s.calls.clear()
        assert isinstance(s.zk, MemoryZooKeeper)
        s.zk.abandon()
        with pytest.raises(SessionLost):
            await s.zk.sync()
    await asyncio.sleep(3.9)
    assert await other.names("/") == ["e"]
    await asyncio.sleep(0.2)
    assert await other.names("/") == []
    assert closes or (s.calls, s.events) == ([], []), "a dead process is not called back"


# -- a server that is behind


async def test_a_lagging_server_has_older_data_until_a_sync_or_a_write_of_its_own_session() -> None:
    server = MemoryServer()
    s, other = await connected(server), await connected(server)
    await other.zk.create("/a", b"0")
    server.lag(s.zk.session_id)
    for number in range(1, 4):
        await other.zk.set("/a", b"%d" % number, ANY_VERSION)
        await other.zk.create(f"/{number}", b"")
        found, seen = await s.zk.get("/a"), s.zk.last_zxid
        assert found is not None
        assert (found.data, found.stat.version) == (b"%d" % (number - 1), number - 1)
        assert await s.zk.exists(f"/{number}") is None
        assert await s.zk.read_many([f"/{number}"]) == [Code.NO_NODE]
        if number == 2:
            await s.zk.create("/mine", b"")
        else:
            await s.zk.heartbeat()
        assert s.zk.last_zxid > seen
        assert await s.zk.exists(f"/{number}") is not None
    server.lose_replies(s.zk.session_id)
    with pytest.raises(OutcomeUnknown):
        await s.zk.set("/a", b"lost", ANY_VERSION)
    await s.reaches(SUSPENDED, CONNECTED)
    found = await s.zk.get("/a")
    assert found is not None
    assert found.data == b"3", "without the reply it need not have its own write yet"
    assert await s.data("/a") == b"lost"


async def test_watches_at_a_lagging_server_fire_late_and_judge_by_what_it_has() -> None:
    server = MemoryServer()
    s, other = await connected(server), await connected(server)
    await other.zk.create("/a", b"")
    server.lag(s.zk.session_id)
    since = s.zk.last_zxid
    await other.zk.set("/a", b"x", 0)
    await other.zk.create("/b", b"")
    await s.zk.watch(data=["/a"], exists=["/b"], children=["/"], since_zxid=max(since, 1))
    assert await s.zk.exists("/b") is None
    assert s.events == []
    await s.saw(("/a", CHANGED), ("/b", WatchKind.CREATED), ("/", CHILD))


# -- errors, and clients in between


@pytest.mark.parametrize("carried_out", [False, True])
async def test_a_write_with_an_error_as_reply_is_carried_out_or_not(carried_out: bool) -> None:
    server = MemoryServer()
    s = await connected(server)
    server.reply_with(s.zk.session_id, Code.OPERATION_TIMEOUT, requests=2, carried_out=carried_out)
    for _ in range(2):
        with pytest.raises(OutcomeUnknown, match="OPERATION_TIMEOUT"):
            await s.zk.create("/q_", b"", sequential=True)
    assert len(await s.names("/")) == (2 if carried_out else 0)


async def test_another_client_acts_between_any_two_requests() -> None:
    server = MemoryServer()
    s, other = await connected(server), await connected(server)
    numbers: list[int] = []

    def act(number: int) -> object:
        numbers.append(number)
        if number == 3:
            server.expire(s.zk.session_id)
        return other.zk.set("/a", b"%d" % number, ANY_VERSION) if number in (1, 2) else None

    await s.zk.create("/a", b"")
    server.between(s.zk.session_id, act)
    before = await s.zk.exists("/a")
    assert before is not None
    after = await s.zk.get("/a")
    assert after is not None
    assert (before.version, after.data) == (0, b"1")
    assert (await s.zk.set("/a", b"", ANY_VERSION)).version == 3
    with pytest.raises(SessionLost):
        await s.zk.sync()
    assert numbers == [0, 1, 2, 3]
