"""Plants bugs in the transport by znodes, on both sides of it."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import count
from typing import Any

from msgspec import structs

from controller.regions.transport import noded, nodes
from controller.regions.transport.noded import Noded
from metadata_store.catalog import answers as simulated
from metadata_store.catalog.answers import NodeAnswers
from metadata_store.catalog.unassigned import OPENED, encode, path_of
from metadata_store.port import ANY_VERSION, Create
from regent_agent import protocol
from regent_agent.protocol import Close, Open, Result
from regent_agent.work import Work
from state_machines.regions import unassigned
from state_machines.regions.unassigned import Asked, NodeState
from tests.kit.simulation.planting import put
from tests.simulation.regions.planting import mutation

N = NodeState
LATE = 1 << 40
"""Above each token that a run gives."""


@mutation
def take_a_znode_without_its_version(stack: ExitStack) -> None:
    """Writes a znode whatever its server has made of it meanwhile."""
    ops = nodes.Nodes._ops

    def anew(self: Any, region: int, wanted: Any) -> Any:
        found = ops(self, region, wanted)
        return [one if isinstance(one, Create) else structs.replace(one, version=ANY_VERSION) for one in found]

    put(stack, nodes.Nodes, "_ops", anew)


@mutation
def delete_an_answer_before_its_row(stack: ExitStack) -> None:
    """Deletes a znode OPENED as it is seen, before the owner is stored."""
    changed = Noded._changed

    def at_once(self: Any, region: int, found: Any) -> None:
        changed(self, region, found)
        if found is not None and found.node is not None and found.node.state is N.OPENED:
            self._nodes.want(region, None, lambda: None)

    put(stack, Noded, "_changed", at_once)
    put(stack, Noded, "_permits", lambda *_: True)


@mutation
def take_a_close_for_done_after_its_time(stack: ExitStack) -> None:
    """Counts a region as closed that its server closes still: a time-out decides (C7)."""
    timed_out = Noded._timed_out

    def decided(self: Any, region: int, sent: Any) -> None:
        if isinstance(sent.operation, Close):
            self.answered(sent.server, Result(sent.pid, protocol.CLOSED))
        else:
            timed_out(self, region, sent)

    put(stack, Noded, "_timed_out", decided)


@mutation
def force_a_closing_region_to_another_server(stack: ExitStack) -> None:
    """Forces a region away that its source closes still, as soon as any other server is dead (C4, S0-59 as written)."""
    look = Noded.look

    def forced(self: Any) -> None:
        look(self)
        for sent in list(self._sent.values()):
            dead = [one for one in fenced if one != sent.server.key and self._is_fenced(one)]
            if isinstance(sent.operation, Close) and dead:
                self.answered(sent.server, Result(sent.pid, protocol.CLOSED))

    drop, fenced = Noded.drop, set[tuple[str, int]]()

    def dropped(self: Any, server: Any) -> None:
        fenced.add(server.key)
        drop(self, server)

    put(stack, Noded, "look", forced)
    put(stack, Noded, "drop", dropped)


@mutation
def open_what_was_closed_for_good(stack: ExitStack) -> None:
    """Opens a region again whose znode is CLOSED and that nothing awaits, also of a table that is disabled (C3)."""
    settle = Noded._settle

    def opened(self: Any, region: int) -> None:
        found = self._nodes.known.get(region)
        node = None if found is None else found.node
        if node is None or node.state is not N.CLOSED or node.token > LATE:
            settle(self, region)
            return
        again = node._replace(state=N.OFFLINE, token=node.token + LATE)
        key = node.server, node.incarnation

        def send() -> None:
            queue = self._queue(key)
            queue.waiting[node.pid + LATE] = Open(node.pid + LATE, region, again.token, "t1", b"", b"", 0)
            queue.wake()

        self._nodes.want(region, again, send)

    put(stack, Noded, "_settle", opened)


@mutation
def close_over_an_open_znode(stack: ExitStack) -> None:
    """Has a server move a znode OPENED to CLOSING, where it may only create one (S0-82)."""
    once = NodeAnswers._once

    async def over(self: Any, asked: Asked, operation: Any, sequence: int) -> bool | None:
        path = path_of(self._root, operation.region)
        znode = await self._zk.get(path)
        if asked is Asked.CLOSE and znode is not None and b'"opened"' in (znode.data or b""):
            node = unassigned.Node(N.CLOSING, operation.region, operation.pid, operation.token, *self._process())
            await self._zk.set(path, encode(node), znode.stat.version)
            return True
        return await once(self, asked, operation, sequence)

    put(stack, NodeAnswers, "_once", over)
    put(stack, Noded, "_is_in_the_way", lambda *_: False)


@mutation
def open_whatever_the_znode_says(stack: ExitStack) -> None:
    """Has a server open and serve a region whose znode is another server's by now."""
    opened = NodeAnswers.opened

    async def anyway(self: Any, operation: Open, sequence: int) -> bool:
        await opened(self, operation, sequence)
        return True

    put(stack, NodeAnswers, "opened", anyway)


@mutation
def serve_before_the_znode_says_so(stack: ExitStack) -> None:
    """Serves a region once it is open, before its znode is OPENED."""
    is_open = Work._is_open

    async def early(self: Any, operation: Open, region: Any) -> Any:
        self.opened[region.region] = region
        return await is_open(self, operation, region)

    put(stack, Work, "_is_open", early)


@mutation
def believe_the_answer_to_another_open(stack: ExitStack) -> None:
    """Takes what a znode says for the answer to the present operation, whatever token it has."""
    put(stack, unassigned.Node, "is_of", lambda self, server, incarnation, token: self.server == server)


@mutation
def forget_that_a_write_was_applied(stack: ExitStack) -> None:
    """Has a server close a region after the response to its OPENED was lost, as if it had not been applied."""

    numbers = count()
    put(stack, simulated, "mark_of", lambda root, *_: f"{root}/{OPENED}/{next(numbers)}")


@mutation
def clear_the_answers_of_a_start(stack: ExitStack) -> None:
    """Deletes all znodes where no server has one of its own, also the answers of processes that serve (C10).

    A daemon that asks again a server whose znode it has written anew is not harmed by that, so it does not.
    """
    put(stack, nodes, "is_opened", lambda found: False)
    trust_a_znode_that_was_written_anew(stack)


@mutation
def trust_a_znode_that_was_written_anew(stack: ExitStack) -> None:
    """Takes a znode after its time that was written again, though its server may have answered in the one before."""
    put(stack, noded.Sent, "is_sure", property(lambda self: True))
