"""Compares, as a daemon takes over, what the oldest page does with a znode and what its procedure does (S0-72 to 76).

The page has nothing but the znode. Here the record says what goes on, and the znode is a message to it: both must come
to the same. Where no record is left, the region is assigned anew, as the page has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from controller.regions.procedures import assign, close
from controller.regions.procedures.messages import TRANSIT, Transit
from controller.regions.transport.found import Found
from controller.regions.transport.nodes import Nodes
from state_machines.procedures.record import Record
from state_machines.regions.unassigned import Cause, MasterAct, Node, master_act
from tests.simulation.regions.invariants import readable

if TYPE_CHECKING:
    from tests.simulation.regions.world import SimulatedRegions

M = MasterAct
SAME: Final[Mapping[str, frozenset[MasterAct]]] = {
    assign.NAME: frozenset({M.AGAIN, M.NOTHING, M.STORE}),
    close.NAME: frozenset({M.NOTHING, M.SWAP, M.STORE}),
}
"""What the page may do with a znode where a procedure of a kind goes on: it sends, waits for, or takes the answer."""
OPENS: Final = frozenset({"offline", "opening", "opened"})
CLOSES: Final = frozenset({"closing", "closed", "opened"})
"""States of the znode of what is closed; OPENED is an answer that is stored and not deleted yet."""


def disagreement(node: Node, record: Record, task: Transit, stored: int) -> str:
    """Returns how page and procedure differ about a znode; empty where they agree, or it is of another operation.

    ``stored``: token of the last open whose end is stored. An operator may have ended an open whose end is not known:
    its server closes the region then, and the page knows no such thing.
    """
    if not node.is_of(task.server, task.incarnation, assign.token_of(record, task)):
        return ""
    if record.kind == close.NAME and task.token > stored:
        return ""
    act = master_act(node.state, Cause.TAKEOVER)
    goes_on = node.state in (OPENS if record.kind == assign.NAME else CLOSES)
    if goes_on and act in SAME[record.kind]:
        return ""
    return f"pid {record.pid} is a dispatched {record.kind}, and its znode is {node.state}: the page {act}"


class SimNodes(Nodes):
    """The znodes of a term, which are compared with its records as it begins."""

    world: SimulatedRegions

    async def _clear(self, clears: dict[int, int]) -> None:
        """Deletes what servers may be about to move: a start does."""
        assert self.world.zookeeper is not None
        self.world.counts["znodes cleared"] += len(clears)
        self.world.zookeeper.clears.add(self._zk.session_id)
        await super()._clear(clears)
        self.world.zookeeper.clears.discard(self._zk.session_id)

    async def begin(self) -> dict[int, Found]:
        """Reads all znodes, and compares them."""
        found = await super().begin()
        self.world.counts["znodes at a takeover"] += len(found)
        nodes = {one.node.region: one.node for one in found.values() if one.node is not None}
        for record, task in _dispatched(self.world):
            node = nodes.get(task.region)
            row = self.world.disk.regions.get(task.region)
            if node is None or row is None:
                continue
            if why := disagreement(node, record, task, row.token):
                self.world.violated("TransportsAgree", why)
        return found


def _dispatched(world: SimulatedRegions) -> Iterable[tuple[Record, Transit]]:
    """Yields the procedures that wait for the answer of a server."""
    for pid, body in world.disk.bodies.items():
        record = readable(pid, body)
        if record is not None and not record.state.is_final and record.kind in SAME and record.step == assign.DISPATCH:
            yield record, TRANSIT.decode(record.data)
