"""What the transport by znodes does from time to time."""

from __future__ import annotations

from collections.abc import Callable

from controller.regions.dispatcher import Limits
from controller.regions.transport.found import Found
from controller.regions.transport.noded import Noded
from controller.regions.transport.nodes import Nodes
from controller.regions.zookeeper_claim import ROOT
from metadata_store.fencing.outcome import Fence
from regent_agent.protocol import NODES, Open
from state_machines.regions.model import Server
from state_machines.regions.states import ServerState
from state_machines.regions.unassigned import Node, NodeState
from testing.memory import MemoryServer, MemoryZooKeeper

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
            *(1, Limits(), lambda: self.now_s, lambda *_: None),
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
