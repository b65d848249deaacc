"""A server that answers by znodes: its write may meet another znode than it has read, whose versions begin anew."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from controller.regions.zookeeper_claim import ROOT
from metadata_store.catalog.answers import NodeAnswers
from metadata_store.catalog.unassigned import (
    OPENED,
    decode,
    encode,
    folder_of,
    mark_of,
    path_of,
    server_of,
    server_path,
    servers_of,
)
from metadata_store.errors import Code, NotConnected, SessionLost
from metadata_store.port import ANY_VERSION, READ_PATHS_MAX, Node, Op, OpResult
from regent_agent.protocol import Close, Open
from state_machines.regions.unassigned import Node as RegionNode
from state_machines.regions.unassigned import NodeState
from testing.memory import MemoryServer, MemoryZooKeeper
from tests.kit.deadlines import eventually

REGION, TOKEN = 7, 5
N = NodeState
MINE = RegionNode(N.OFFLINE, REGION, TOKEN, TOKEN, "a", 1)
OTHERS = RegionNode(N.OFFLINE, REGION, TOKEN + 1, TOKEN + 1, "b", 1)
PATH = path_of(ROOT, REGION)
OPEN = Open(TOKEN, REGION, TOKEN, "t", b"", b"", 0)


class Interrupted(MemoryZooKeeper):
    """A session for which something happens between a read of the znode and the next request."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.after_read: list[Callable[[], Awaitable[None]]] = []

    async def read_many(self, paths: Sequence[str], *, paths_max: int = READ_PATHS_MAX) -> list[Node | Code]:
        found = await super().read_many(paths, paths_max=paths_max)
        if PATH in paths and self.after_read:
            await self.after_read.pop(0)()
        return found


class Stage:
    """The daemon's session, and a server with its own."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.daemon = MemoryZooKeeper(self.server)
        self.zk = Interrupted(self.server)
        self.answers = NodeAnswers(self.zk, ROOT, lambda: ("a", 1))

    async def begin(self) -> None:
        for zk in (self.daemon, self.zk):
            await zk.connect(1.0)
        for path in ("/regent", ROOT, folder_of(ROOT), f"{ROOT}/{OPENED}", servers_of(ROOT)):
            await self.daemon.create(path, None)
        await self.daemon.create(PATH, encode(MINE))

    async def made_anew(self, *states: NodeState) -> None:
        """Has the daemon give the region to another server, by a znode of its own, which gets as far as ``states``."""
        await self.daemon.delete(PATH, ANY_VERSION)
        await self.daemon.create(PATH, encode(OTHERS))
        for state in states:
            await self.daemon.set(PATH, encode(OTHERS._replace(state=state)), ANY_VERSION)

    async def state(self) -> tuple[NodeState, str] | None:
        found = await self.daemon.get(PATH)
        node = None if found is None else decode(found.data, REGION)
        return None if node is None else (node.state, node.server)


@pytest.fixture
async def stage() -> Stage:
    found = Stage()
    await found.begin()
    return found


async def test_an_open_begins_ends_and_is_told_once(stage: Stage) -> None:
    assert await stage.answers.begins(OPEN)
    assert await stage.state() == (N.OPENING, "a")
    assert await stage.answers.opened(OPEN, 3)
    assert await stage.state() == (N.OPENED, "a")

    async def has_gone() -> bool:
        return await stage.daemon.exists(mark_of(ROOT, REGION, TOKEN)) is None

    assert not await has_gone(), "it goes with others, a bit later"
    await eventually(has_gone)


async def test_no_open_begins_whose_write_met_the_znode_of_another_server(stage: Stage) -> None:
    stage.zk.after_read.append(stage.made_anew)
    assert not await stage.answers.begins(OPEN)


async def test_no_open_begins_whose_write_met_such_a_znode_and_whose_response_was_lost(stage: Stage) -> None:
    async def made_anew() -> None:
        await stage.made_anew()
        stage.server.lose_replies(stage.zk.session_id)

    stage.zk.after_read.append(made_anew)
    assert not await stage.answers.begins(OPEN)
    assert stage.zk.after_read == [], "it was read again"


async def test_an_open_begins_with_the_znode_that_the_daemon_has_written_anew_for_it(stage: Stage) -> None:
    """It was read before, and the write of what was read is refused: the next look finds the same open."""

    async def anew() -> None:
        await stage.daemon.delete(PATH, ANY_VERSION)
        await stage.daemon.create(PATH, b"?")
        await stage.daemon.set(PATH, encode(MINE), 0)

    stage.zk.after_read.append(anew)
    assert await stage.answers.begins(OPEN)
    assert await stage.answers.opened(OPEN, 3)


async def test_an_open_that_may_have_begun_on_the_znode_of_another_begins_on_none(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first write may have met any znode; a server of ZooKeeper that lags behind shows the former one again."""
    former = await stage.daemon.get(PATH)
    assert former is not None
    stage.server.lose_replies(stage.zk.session_id)
    stage.zk.after_read.append(stage.made_anew)
    read_many, reads = stage.zk.read_many, list[int]()

    async def lagging(paths: Sequence[str], **bounds: int) -> list[Node | Code]:
        reads.append(1)
        found = await read_many(paths, **bounds)
        return [former] if len(reads) == 2 else found

    monkeypatch.setattr(stage.zk, "read_many", lagging)
    assert not await stage.answers.begins(OPEN)
    assert len(reads) == 3


async def test_the_mark_of_an_earlier_answer_tells_nothing_of_a_later_one(stage: Stage) -> None:
    """The daemon asks again, for a znode that it has written anew, which says nothing yet: the server reports."""
    assert await stage.answers.begins(OPEN)
    assert await stage.answers.opened(OPEN, 3)
    assert await stage.daemon.exists(mark_of(ROOT, REGION, TOKEN)) is not None
    await stage.daemon.delete(PATH, ANY_VERSION)
    await stage.daemon.create(PATH, encode(MINE))
    assert not await stage.answers.opened(OPEN, 3)


async def test_a_mark_whose_deletion_had_no_response_goes_later(stage: Stage) -> None:
    assert await stage.answers.begins(OPEN)
    assert await stage.answers.opened(OPEN, 3)
    multi, tried = stage.zk.multi, list[int]()

    async def lost(ops: Sequence[Op]) -> list[OpResult]:
        tried.append(len(ops))
        if len(tried) == 1:
            raise NotConnected("no connection")
        return await multi(ops)

    stage.zk.multi = lost  # type: ignore[method-assign]
    await eventually(lambda: len(tried) == 2)
    await eventually(lambda: stage.answers._forgetting is not None and stage.answers._forgetting.done())
    assert await stage.daemon.exists(mark_of(ROOT, REGION, TOKEN)) is None


async def test_nothing_tries_to_delete_a_mark_of_a_session_that_is_over(stage: Stage) -> None:
    assert await stage.answers.begins(OPEN)
    assert await stage.answers.opened(OPEN, 3)
    stage.server.expire(stage.zk.session_id)
    await eventually(lambda: stage.answers._forgetting is not None and stage.answers._forgetting.done())
    assert not stage.answers._marks


async def test_an_open_ends_on_no_znode_but_the_one_that_it_has_begun_with(stage: Stage) -> None:
    assert await stage.answers.begins(OPEN)

    async def made_anew() -> None:
        await stage.made_anew(N.OPENING)

    stage.zk.after_read.append(made_anew)
    assert not await stage.answers.opened(OPEN, 3)


async def test_an_open_whose_response_was_lost_has_not_ended_on_the_znode_of_another_server(stage: Stage) -> None:
    assert await stage.answers.begins(OPEN)

    async def made_anew() -> None:
        await stage.made_anew(N.OPENING)
        stage.server.lose_replies(stage.zk.session_id)

    stage.zk.after_read.append(made_anew)
    assert not await stage.answers.opened(OPEN, 3)


@pytest.mark.parametrize("then", ["stays", "goes", "is made anew"])
async def test_an_open_whose_response_was_lost_has_ended_whatever_became_of_its_znode(stage: Stage, then: str) -> None:
    assert await stage.answers.begins(OPEN)

    async def lost() -> None:
        stage.server.lose_replies(stage.zk.session_id)

    if then != "stays":
        before = stage.zk.read_many

        async def read_many(paths: Sequence[str], **bounds: int) -> list[Node | Code]:
            if await stage.state() == (N.OPENED, "a"):
                await (stage.daemon.delete(PATH, ANY_VERSION) if then == "goes" else stage.made_anew())
            return await before(paths, **bounds)

        stage.zk.read_many = read_many  # type: ignore[method-assign]
    stage.zk.after_read.append(lost)
    assert await stage.answers.opened(OPEN, 3)


async def test_a_close_makes_a_znode_of_its_own_after_an_open(stage: Stage) -> None:
    assert await stage.answers.begins(OPEN)
    assert await stage.answers.opened(OPEN, 3)
    await stage.daemon.delete(PATH, ANY_VERSION)
    close = Close(TOKEN + 1, REGION, TOKEN)
    assert await stage.answers.begins(close)
    assert await stage.answers.closed(close)
    assert await stage.state() == (N.CLOSED, "a")


# -- the ephemeral znode of the process

ME = server_path(ROOT, "a", 1)


async def test_a_process_appears_once_the_folder_is_there(stage: Stage) -> None:
    await stage.daemon.delete(servers_of(ROOT), ANY_VERSION)
    appears = asyncio.ensure_future(stage.answers.appears())
    await asyncio.sleep(0)
    await stage.daemon.create(servers_of(ROOT), None)
    await appears
    found = await stage.daemon.exists(ME)
    assert found is not None
    assert found.ephemeral_owner == stage.zk.session_id
    await stage.answers.appears()
    assert await stage.daemon.exists(ME) == found, "it is there already"


async def test_the_znode_of_a_former_session_makes_way(stage: Stage) -> None:
    await stage.daemon.create(ME, None, ephemeral=True)
    await stage.answers.appears()
    found = await stage.daemon.exists(ME)
    assert found is not None
    assert found.ephemeral_owner == stage.zk.session_id


async def test_nothing_appears_in_a_session_that_is_over(stage: Stage) -> None:
    stage.server.expire(stage.zk.session_id)
    with pytest.raises(SessionLost):
        await stage.answers.appears()


@pytest.mark.parametrize("name", ["a", "a,b", "rack/1", "ä b%2F", ",", "a,1"])
def test_a_process_is_found_by_the_name_of_its_znode(name: str) -> None:
    path = server_path(ROOT, name, 7)
    assert path.count("/") == ME.count("/")
    assert server_of(path.rpartition("/")[2]) == (name, 7)


@pytest.mark.parametrize("name", ["", "a", "a,", ",1", "a,-1", "a,x", "a,²"])
def test_other_names_stand_for_no_process(name: str) -> None:
    assert server_of(name) is None


# -- what is wrong with a server


async def test_a_server_with_another_chroot_is_told_so(stage: Stage) -> None:
    other = NodeAnswers(stage.zk, "/elsewhere", lambda: ("a", 1))
    for asked in (OPEN, Close(TOKEN + 1, REGION, TOKEN)):
        with pytest.raises(LookupError, match="/elsewhere/unassigned is not there: give this server ZooKeeper"):
            await other.begins(asked)


async def test_a_server_without_the_identity_is_told_which_it_needs(stage: Stage) -> None:
    for answer in (stage.answers.begins(OPEN), stage.answers.appears()):
        stage.server.reply_with(stage.zk.session_id, Code.NO_AUTH)
        with pytest.raises(PermissionError, match=r"regions\.servers_identity"):
            await answer
