"""What the transport by znodes does from time to time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from controller.regions.dispatcher import DispatchLimits
from controller.regions.transport import left_alone, presence
from controller.regions.transport.found import Found
from controller.regions.transport.left_alone import READ, WRITTEN, LeftAlone
from controller.regions.transport.noded import Noded
from controller.regions.transport.nodes import Nodes
from controller.regions.transport.presence import Presence
from controller.regions.zookeeper_claim import ROOT
from metadata_store.acl import ADMIN, OPEN, Acl
from metadata_store.catalog.unassigned import encode, folder_of, marks_of, path_of, server_path, servers_of
from metadata_store.errors import Code, OutcomeUnknown
from metadata_store.fencing.outcome import Fence
from metadata_store.port import Node as Znode
from metadata_store.port import Write
from regent_agent.protocol import NODES, Open
from state_machines.regions.entities import Server
from state_machines.regions.states import ServerState
from state_machines.regions.unassigned import Node, NodeState
from testing.memory import MemoryServer, MemoryZooKeeper
from tests.kit.deadlines import eventually

TIMEOUT_S = 5.0
SERVER = Server("s1", 1, "s1:1", "", ServerState.ONLINE, {}, features=frozenset({NODES}))


class Wishes(Nodes):
    """Znodes that note which of them are to be written."""

    regions: list[int]

    def want(self, region: int, node: Node | None, done: Callable[[], None]) -> None:
        self.regions.append(region)
        super().want(region, node, done)


async def _connected() -> None:
    pass


class Story:
    """A transport with a clock that is set, and without a task that writes its znodes."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.nodes = Wishes(MemoryZooKeeper(MemoryServer()), Fence(0), ROOT, _connected)
        self.nodes.regions = []
        self.noded = Noded(
            *(1, DispatchLimits(), lambda: self.now_s, lambda *_: None),
            *(self.nodes, lambda _: False, lambda _: False, TIMEOUT_S),
        )

    def is_now(self, region: int, state: NodeState) -> None:
        """Has a znode of the server be what it is from now on."""
        found = self.nodes.known[region] = Found(Node(state, region, region, 2, *SERVER.key), 3)
        self.nodes.changed(region, found)

    def looks_at(self, now_s: float) -> list[int]:
        """Looks at a time; returns the znodes that are to be written by that."""
        self.now_s, self.nodes.regions = now_s, []
        self.noded.look()
        return sorted(self.nodes.regions)


async def test_a_znode_that_nobody_awaits_is_deleted_by_one_wish_however_long_that_takes() -> None:
    """Znodes of ten thousand regions may wait for their deletion, and each look goes over all of them."""
    story = Story()
    story.nodes.known = {region: Found(Node(NodeState.OPENED, region, 1, 2, *SERVER.key), 3) for region in (7, 8)}
    assert story.looks_at(0.0) == [], "procedures of the daemon before may await them still"
    assert story.looks_at(TIMEOUT_S) == [7, 8]
    assert story.looks_at(TIMEOUT_S) == []
    story.nodes.leave(7)
    assert story.looks_at(TIMEOUT_S) == [7], "without a wish it is wanted again"


async def test_an_open_that_waits_behind_others_is_not_taken_from_its_server() -> None:
    """A server begins with a few of its opens at once; the last one of a thousand waits for all others."""
    story = Story()
    for region in (7, 8):
        story.noded.send(SERVER, Open(region, region, 2, "t", b"", b""))
        story.is_now(region, NodeState.OFFLINE)
    story.now_s = 0.9 * TIMEOUT_S
    story.is_now(7, NodeState.OPENING)
    assert story.looks_at(1.8 * TIMEOUT_S) == []
    assert story.looks_at(1.9 * TIMEOUT_S) == [7, 8], "from then on it has moved none"


# -- what it shows

MOVED = [
    (None, ""),
    (Found(None, 3), f"its znode {ROOT}/unassigned/7 holds what this daemon cannot read"),
    (
        Found(Node(NodeState.OPENING, 7, 1, 2, "s1", 9), 3),
        f"its znode {ROOT}/unassigned/7 is opening for s1,9, with token 2",
    ),
    (
        Found(Node(NodeState.OFFLINE, 7, 1, 2, "", 0), 3),
        f"its znode {ROOT}/unassigned/7 is offline for no server any more",
    ),
]


@pytest.mark.parametrize(("found", "says"), MOVED)
async def test_a_region_says_what_its_znode_holds(found: Found | None, says: str) -> None:
    story = Story()
    if found is not None:
        story.nodes.known[7] = found
    assert story.noded.shows(7).startswith(says)
    assert bool(story.noded.shows(7)) == bool(says)


class Submits:
    """Counts writes."""

    count = 0

    async def before(self, _: Sequence[Write]) -> None:
        self.count += 1

    async def after(self, _: Sequence[Write]) -> None:
        """Does nothing."""


@pytest.fixture
async def zk() -> MemoryZooKeeper:
    found = MemoryZooKeeper(MemoryServer())
    await found.connect(1.0)
    return found


@pytest.fixture
async def nodes(zk: MemoryZooKeeper) -> Nodes:
    """Znodes of a term in whose folder there are some of others."""
    paths = "/regent", ROOT, f"{ROOT}/epoch", folder_of(ROOT), marks_of(ROOT), servers_of(ROOT)
    for path in (*paths, f"{folder_of(ROOT)}/notes", f"{folder_of(ROOT)}/007"):
        await zk.create(path, None)
    await zk.create(path_of(ROOT, 7), b"{", acl=[Acl(ADMIN, "world", "anyone")])
    return Nodes(zk, Fence(0, path=f"{ROOT}/epoch"), ROOT, _connected)


async def test_names_of_strangers_are_told_once_in_a_term(nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        await nodes.begin()
    told = [one.getMessage() for one in caplog.records if "no region's" in one.getMessage()]
    [one] = told
    assert one.startswith(f"{folder_of(ROOT)} has 2 znodes that are no region's ('007', 'notes'): they stay")


async def test_a_znode_that_may_not_be_read_is_named_with_the_remedy_and_read_once_it_may_be(
    zk: MemoryZooKeeper, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_alone, "PAUSES_S", (0.05,))
    await nodes.begin()
    assert nodes.shows(7) == "", "it is no region in transition"
    keeping = asyncio.ensure_future(nodes.keep())
    nodes.follow(7)
    await eventually(lambda: nodes.shows(7))
    assert nodes.shows(7) == (
        f"its znode {path_of(ROOT, 7)} cannot be read (NO_AUTH), which is tried from time to time: look at its ACL "
        "and children, or delete it with these"
    )
    await zk.set_acls(path_of(ROOT, 7), OPEN, 0)
    await eventually(lambda: nodes.known.get(7) == Found(None, 0))
    assert nodes.shows(7).startswith(f"its znode {path_of(ROOT, 7)} holds what this daemon cannot read")
    keeping.cancel()


async def test_a_znode_that_is_left_alone_has_one_timer_whatever_looks_at_it(nodes: Nodes) -> None:
    await nodes.begin()
    keeping = asyncio.ensure_future(nodes.keep())
    nodes.follow(7)
    await eventually(lambda: nodes.shows(7))
    timers = {one.ends for one in nodes._left_alone._left.values()}
    for _ in range(20):
        nodes.reconnected()
        nodes.list_again()
        await eventually(lambda: not (nodes._dirty or nodes._lists))
    assert {one.ends for one in nodes._left_alone._left.values()} == timers
    keeping.cancel()


async def test_a_znode_that_the_operator_has_deleted_is_no_trouble_any_more(
    zk: MemoryZooKeeper, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_alone, "PAUSES_S", (0.05,))
    await nodes.begin()
    keeping = asyncio.ensure_future(nodes.keep())
    nodes.follow(7)
    await eventually(lambda: nodes.shows(7))
    await zk.delete(path_of(ROOT, 7), 0)
    await eventually(lambda: not nodes.shows(7))
    assert not nodes._left_alone._left
    keeping.cancel()


async def test_a_znode_of_which_nothing_waits_is_not_left_alone(zk: MemoryZooKeeper, nodes: Nodes) -> None:
    """Its operation was taken back while the request was under way: the next one begins at once."""
    await nodes.begin()
    read_many = zk.read_many

    async def meanwhile(paths: Sequence[str], **bounds: int) -> list[Znode | Code]:
        nodes.unfollow(7)
        return await read_many(paths, **bounds)

    zk.read_many = meanwhile  # type: ignore[method-assign]
    keeping = asyncio.ensure_future(nodes.keep())
    nodes.follow(7)
    await eventually(lambda: 7 not in nodes._watched and not nodes._dirty)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not nodes._left_alone._left
    keeping.cancel()


async def test_a_write_of_unknown_outcome_is_not_done_because_its_znode_cannot_be_read(
    zk: MemoryZooKeeper, nodes: Nodes
) -> None:
    await nodes.begin()
    await zk.create(path_of(ROOT, 8), encode(Node(NodeState.OPENED, 8, 1, 2, "s1", 1)))
    keeping, done = asyncio.ensure_future(nodes.keep()), list[int]()
    nodes.follow(8)
    await eventually(lambda: 8 in nodes.known)

    class Closes(Submits):
        async def after(self, _: Sequence[Write]) -> None:
            zk.hooks = None
            await zk.create(path_of(ROOT, 8), b"{", acl=[Acl(ADMIN, "world", "anyone")])
            raise OutcomeUnknown("no response")

    zk.hooks = Closes()
    nodes.want(8, None, lambda: done.append(8))
    await eventually(lambda: nodes._left_alone.is_unread(8))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not done
    keeping.cancel()


async def test_a_refusal_while_a_znode_is_left_alone_changes_nothing() -> None:
    found = LeftAlone(ROOT, lambda region, what: None)
    assert found.refused(7, READ, Code.NO_AUTH)
    [left] = found._left.values()
    assert not found.refused(7, READ, Code.NO_AUTH)
    assert [*found._left.values()] == [left]


async def test_what_is_refused_is_counted_apart_and_forgotten_with_its_region() -> None:
    again = list[tuple[int, str]]()
    found = LeftAlone(ROOT, lambda region, what: again.append((region, what)))
    for _ in range(left_alone.RACES_MAX):
        assert not found.refused(7, WRITTEN, Code.BAD_VERSION)
    assert found.refused(7, READ, Code.NO_AUTH)
    assert (found.has(7, READ), found.has(7, WRITTEN)) == (True, False)
    found.went_well(7, WRITTEN)
    assert not found.refused(7, WRITTEN, Code.BAD_VERSION), "the count begins anew"
    found.went_well(7, READ)
    assert (found.why(7), again) == ("", [])


async def test_the_log_names_some_of_the_znodes_that_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    found = LeftAlone(ROOT, lambda region, what: None)
    for region in range(1_000):
        assert found.refused(region, WRITTEN, Code.NO_AUTH)
    assert len(caplog.records) == left_alone.LINES_MAX + 1
    assert "regent regions explain" in caplog.records[-1].getMessage()


@pytest.mark.parametrize("portion", [2, 1_000])
async def test_a_turn_of_the_loop_reads_some_of_the_names_in_a_folder(
    zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch, portion: int
) -> None:
    monkeypatch.setattr(presence, "PORTION", portion)
    for path in ("/regent", ROOT, servers_of(ROOT), *(server_path(ROOT, f"s{n}", n) for n in range(40))):
        await zk.create(path, None)
    servers = Presence(zk, ROOT)
    looking, turns = asyncio.ensure_future(servers.look()), 0
    while not looking.done():
        turns += 1
        await asyncio.sleep(0)
    assert servers.present == {(f"s{n}", n) for n in range(40)}
    assert (turns > 20) == (portion == 2)


@pytest.mark.parametrize("node", [None, Node(NodeState.OFFLINE, 7, 1, 2, "s1", 1)], ids=["delete", "write"])
async def test_a_znode_that_may_not_be_read_is_not_written_and_holds_up_no_other_one(
    zk: MemoryZooKeeper, nodes: Nodes, node: Node | None
) -> None:
    many = range(100, 130)
    for region in many:
        await zk.create(path_of(ROOT, region), b"{", acl=[Acl(ADMIN, "world", "anyone")])
    await nodes.begin()
    keeping, done = asyncio.ensure_future(nodes.keep()), list[int]()
    for region in many:
        nodes.follow(region)
    await eventually(lambda: all(map(nodes.shows, many)))
    hooks = zk.hooks = Submits()
    for region in many:
        nodes.want(region, node, lambda: done.append(-1))
    nodes.want(8, Node(NodeState.OFFLINE, 8, 1, 2, "s1", 1), lambda: done.append(8))
    await eventually(lambda: done)
    assert (done, hooks.count) == ([8], 1)
    keeping.cancel()


async def test_a_znode_that_is_wanted_alone_is_written_once_it_may_be_read(
    zk: MemoryZooKeeper, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no watch: a corrected ACL shows at the next read alone."""
    monkeypatch.setattr(left_alone, "PAUSES_S", (0.05,))
    await nodes.begin()
    keeping, done = asyncio.ensure_future(nodes.keep()), asyncio.Event()
    nodes.want(7, Node(NodeState.OFFLINE, 7, 1, 2, "s1", 1), done.set)
    nodes.look(7)
    await eventually(lambda: nodes._left_alone.is_unread(7))
    await zk.set_acls(path_of(ROOT, 7), OPEN, 0)
    await eventually(done.is_set)
    found = await zk.get(path_of(ROOT, 7))
    assert found is not None
    assert b'"offline"' in (found.data or b"")
    keeping.cancel()
