"""What the transport by znodes does from time to time."""

from __future__ import annotations

from collections.abc import Callable

from controller.regions.dispatcher import Limits
from controller.regions.transport.noded import Noded
from controller.regions.transport.nodes import Found, Nodes
from controller.regions.zookeeper_claim import ROOT
from metadata_store.fencing.outcome import Fence
from state_machines.regions.unassigned import Node, NodeState
from testing.memory import MemoryServer, MemoryZooKeeper

TIMEOUT_S = 5.0


class Wishes(Nodes):
    """Znodes that note which of them are to be written."""

    regions: list[int]

    def want(self, region: int, node: Node | None, done: Callable[[], None]) -> None:
        self.regions.append(region)
        super().want(region, node, done)


async def _connected() -> None:
    pass


async def test_a_znode_that_nobody_awaits_is_deleted_by_one_wish_however_long_that_takes() -> None:
    """Znodes of ten thousand regions may wait for their deletion, and each look goes over all of them."""
    nodes = Wishes(MemoryZooKeeper(MemoryServer()), Fence(0), ROOT, _connected)
    nodes.regions, now_s = [], [0.0]
    noded = Noded(*(1, Limits(), lambda: now_s[0], lambda *_: None, nodes, lambda _: False, lambda _: False, TIMEOUT_S))
    nodes.known = {region: Found(Node(NodeState.OPENED, region, 1, 2, "s1", 1), 3) for region in (7, 8)}
    noded.look()
    assert nodes.regions == [], "procedures of the daemon before may await them still"
    now_s[0] = TIMEOUT_S
    noded.look()
    noded.look()
    assert sorted(nodes.regions) == [7, 8]
    nodes.leave(7)
    noded.look()
    assert sorted(nodes.regions) == [7, 7, 8], "without a wish it is wanted again"
