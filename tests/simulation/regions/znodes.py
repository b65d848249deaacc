"""The ZooKeeper of runs whose servers answer by znodes: sessions of processes, faults, and what may be written."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from controller.regions.transport.noded import Noded
from controller.regions.transport.nodes import Nodes
from controller.regions.zookeeper_claim import ROOT
from metadata_store.catalog.answers import TO, NodeAnswers
from metadata_store.catalog.unassigned import FOLDER, UnreadableNode, decode, encode, path_of, region_of
from metadata_store.errors import Code, NotConnected, OutcomeUnknown
from metadata_store.fencing.outcome import Fence
from metadata_store.port import (
    ANY_VERSION,
    READ_PATHS_MAX,
    ConnectionState,
    Create,
    Delete,
    OpResult,
    SetData,
    Stat,
    Write,
)
from metadata_store.port import Node as Znode
from metadata_store.records.port import StoreFailed
from regent_agent.protocol import Open
from state_machines.regions.unassigned import SERVER, Node, NodeState, seen_by
from testing.memory import MemoryServer, MemoryZooKeeper
from testing.memory.permissions import Identity
from testing.simulated.regions.storage import Key
from tests.kit.regions.transports import Unseen
from tests.kit.simulation.loop import Life, Process
from tests.simulation.regions.takeovers import SimNodes

if TYPE_CHECKING:
    from tests.simulation.regions.daemons import DaemonNode
    from tests.simulation.regions.world import SimulatedRegions

EPOCH: Final = f"{ROOT}/epoch"
PAUSE_S_MAX: Final = 0.05
"""Longest time of a request of a server on its way."""
BREAKS: Final = 0.02
"""Part of the writes whose connection breaks: their response is lost, and with it all watches."""
AWAY_S_MAX: Final = 1.0
"""Longest time from such a break until the next request arrives."""
SESSION_S: Final = 0.7
"""Time after which ZooKeeper ends the session of a server that is dead or frozen."""
HEARTBEAT_S: Final = 0.25
APPEARS: Final = 0.6
"""Part of the runs in which processes of servers have ephemeral znodes."""
NO_ONE: Final[Identity] = frozenset()
N = NodeState


class Sessions(MemoryServer):
    """The server, which has each write to a znode of a region judged as it is carried out."""

    def __init__(self, world: SimulatedRegions) -> None:
        super().__init__()
        self._world = world
        self.keys: dict[int, Key] = {}
        """The processes of servers, by their sessions; all others are daemons."""
        self.read: dict[tuple[int, str], int] = {}
        """The transactions that made the znodes which sessions have read last."""
        self.clears: set[int] = set()
        """Sessions of daemons that clear all znodes, as a term begins."""
        self.winners: dict[tuple[int, int], Key] = {}
        """The process that has moved the znode of an open to OPENED, by region and token."""
        self.failed: set[int] = set()
        """Operations that servers have reported as failed: they do not move the znodes of these any more."""

    def write(self, session: int, ops: Sequence[Write], *, single: bool) -> list[OpResult] | None:
        """Carries out one write, and judges what it has made of znodes."""
        paths = list(dict.fromkeys(op.path for op in ops if op.path.startswith(f"{ROOT}/{FOLDER}/")))
        before = [self._node(path) for path in paths]
        anew = {path for path in paths if session in self.keys and self._is_anew(session, path)}
        try:
            return super().write(session, ops, single=single)
        finally:
            for path, node in zip(paths, before, strict=True):
                if (now := self._node(path)) != node and path not in anew:
                    self._judge(session, node, now)
            self._world.counts["znodes made anew under a write"] += len(anew)

    def overwritten(self, which: int, becomes: str) -> None:
        """Writes one of the znodes for a stranger, without a judge. ``becomes``: its state, or what it is not."""
        found, _ = self.tree.children(f"{ROOT}/{FOLDER}", NO_ONE) or ([], None)
        regions = sorted(one for name in found if (one := region_of(name)) is not None)
        if not regions:
            return
        path = path_of(ROOT, region := regions[which % len(regions)])
        data = encode(Node(N(becomes), region, 1, 1, "stranger", 1)) if becomes in set(N) else b"{"
        op = Delete(path, ANY_VERSION) if becomes == "gone" else SetData(path, data, ANY_VERSION)
        self._fire(self.tree.single(op, NO_ONE, 0)[1])
        self._world.counts["znodes that strangers wrote"] += 1

    def _is_anew(self, session: int, path: str) -> bool:
        """Checks whether a server writes to another znode than it has read: versions begin anew, and it sees it after.

        What it does then is judged by what it serves.
        """
        [found] = self.tree.nodes([path], NO_ONE)
        return isinstance(found, Znode) and self.read.get((session, path), found.stat.czxid) != found.stat.czxid

    def _node(self, path: str) -> Node | None:
        [found] = self.tree.nodes([path], NO_ONE)
        region = region_of(path.rpartition("/")[2])
        if not isinstance(found, Znode) or region is None:
            return None
        try:
            return decode(found.data, region)
        except UnreadableNode:
            return None

    def _judge(self, session: int, before: Node | None, after: Node | None) -> None:
        key, world = self.keys.get(session), self._world
        world.counts["znodes written"] += 1
        why = self._of_daemon(session, before, after) if key is None else of_server(key, before, after)
        if why:
            world.violated("NodeLegal", f"{key or 'the daemon'} {why}: {before} became {after}")
        if key is not None and after is not None and after.state is N.OPENED:
            first = self.winners.setdefault((after.region, after.token), key)
            if first != key:
                world.violated("OneWinner", f"{first} and {key} have opened region {after.region} with {after.token}")

    def _of_daemon(self, session: int, before: Node | None, after: Node | None) -> str:
        """Returns why the daemon may not write this; empty where it may."""
        if after is not None and after.state is not N.OFFLINE:
            return f"made a znode {after.state}"
        if before is None:
            return ""
        key = before.server, before.incarnation
        moves = before.state in (N.OPENING, N.CLOSING) and self._world.may_write(key)
        moves = moves and before.pid not in self.failed and session not in self.clears
        if after is None:
            return "deleted a znode that a server is about to move" if moves else self._unstored(before)
        if before.state is N.CLOSING and moves:
            return "took a region from the server that closes it"
        is_higher = after.server and after.token > before.token
        if before.state is N.OPENED and self._world.may_write(key) and not is_higher:
            return "took a region from the server that has it"
        return ""

    def _unstored(self, before: Node) -> str:
        """A znode goes once the row says what it said."""
        term = self._world.term
        dispatcher = None if term is None else term.env.dispatcher
        sent = dispatcher._sent.get(before.region) if isinstance(dispatcher, Noded) else None
        awaited = sent is not None and isinstance(sent.operation, Open) and sent.operation.token == before.token
        if before.state is N.OPENED and awaited:
            return "deleted an answer that is not stored"
        return ""


def of_server(key: Key, before: Node | None, after: Node | None) -> str:
    """Returns why a server may not write this; empty where its rules allow it."""
    if after is None:
        return "deleted a znode"
    if (after.server, after.incarnation) != key:
        return "wrote in the name of another process"
    if before is None:
        return "" if after.state is N.CLOSING else f"created a znode {after.state}"
    seen = seen_by(before, *key, after.token)
    allowed = {TO[act] for (state, _), act in SERVER.items() if state is seen and act in TO}
    return "" if after.state in allowed else "moved a znode against the rules"


class SimZooKeeper(MemoryZooKeeper):
    """A session whose calls reach its own process, and end with it."""

    def __init__(self, world: SimulatedRegions, process: Process) -> None:
        assert world.zookeeper is not None
        super().__init__(world.zookeeper, session_timeout_ms=3_600_000)
        self._world, self._process = world, process
        self._chance = random.Random(f"{world.plan.seed} {process.name} zookeeper {world.loop.now_s}")
        self._away_until_s = 0.0

    def _hand_over(self, item: Callable[[], None]) -> None:
        self._items.append(item)
        self._process.call_soon(self._drain)

    async def _arrive(self) -> Identity:
        away_s = max(0.0, self._away_until_s - self._world.loop.now_s)
        await asyncio.sleep(away_s + self._chance.random() * PAUSE_S_MAX)
        return await super()._arrive()

    async def read_many(self, paths: Sequence[str], *, paths_max: int = READ_PATHS_MAX) -> list[Znode | Code]:
        """Reads znodes, and notes which ones they were."""
        found = await super().read_many(paths, paths_max=paths_max)
        if isinstance(self.server, Sessions) and self.session_id in self.server.keys:
            for path, one in zip(paths, found, strict=True):
                if isinstance(one, Znode):
                    self.server.read[self.session_id, path] = one.stat.czxid
        return found

    async def _submit(self, ops: Sequence[Write], single: bool) -> list[OpResult]:
        if self._chance.random() < BREAKS:
            self._world.counts["znode responses lost"] += 1
            self.server.lose_replies(self.session_id)
        try:
            return await super()._submit(ops, single)
        except OutcomeUnknown:
            self._away_until_s = self._world.loop.now_s + self._chance.random() * AWAY_S_MAX
            raise


class DaemonHooks:
    """Has a daemon die before or after its writes to znodes, too."""

    def __init__(self, node: DaemonNode) -> None:
        self._node = node

    async def before(self, _: Sequence[Write]) -> None:
        await self._node.may_die(after=False)

    async def after(self, _: Sequence[Write]) -> None:
        await self._node.may_die(after=True)


async def nodes_of(node: DaemonNode, epoch: int) -> Nodes:
    """Opens the znodes for a daemon, whose epoch fences those before it."""
    assert node.process is not None
    zk = SimZooKeeper(node.world, node.process)
    await zk.connect(1.0)
    stat = await _entered(zk, epoch)

    async def connected() -> None:
        while zk.state is not ConnectionState.CONNECTED:
            if zk.state is ConnectionState.LOST:
                raise StoreFailed("the session is over")
            await asyncio.sleep(0.01)

    fence = Fence(stat.version, lambda: zk.state is ConnectionState.CONNECTED, EPOCH)
    nodes = SimNodes(zk, fence, ROOT, connected)
    nodes.world = node.world
    zk.hooks = DaemonHooks(node)
    zk.on_watch = lambda event: nodes.watch_fired(event.path)
    zk.on_state = lambda state: nodes.reconnected() if state is ConnectionState.CONNECTED else None
    return nodes


async def _entered(zk: SimZooKeeper, epoch: int) -> Stat:
    while True:
        try:
            return await zk.set(EPOCH, b"%d" % epoch, ANY_VERSION)
        except (NotConnected, OutcomeUnknown):
            await asyncio.sleep(0.01)


async def answers_of(world: SimulatedRegions, process: Process, key: Key, over: Callable[[], None]) -> NodeAnswers:
    """Opens a session for the process of a server. ``over``: called where it has ended, which ends the process."""
    zk = SimZooKeeper(world, process)
    await zk.connect(1.0)
    assert world.zookeeper is not None
    world.zookeeper.keys[zk.session_id] = key
    zk.on_state = lambda state: over() if state is ConnectionState.LOST else None
    beats(world, process, zk.session_id, world.loop.now_s)
    kind = NodeAnswers if random.Random(f"{world.plan.seed} appears").random() < APPEARS else Unseen
    return kind(zk, ROOT, lambda: key)


def beats(world: SimulatedRegions, process: Process, session: int, last_s: float) -> None:
    """Ends a session whose process is dead or frozen for long enough, and looks again a bit later."""
    now_s = world.loop.now_s
    if process.life is Life.RUNNING:
        last_s = now_s
    if now_s - last_s >= SESSION_S:
        assert world.zookeeper is not None
        world.zookeeper.expire(session)
        world.counts["sessions of servers ended"] += 1
        return
    world.loop.call_at(now_s + HEARTBEAT_S, lambda: beats(world, process, session, last_s), context=world.loop.root)


def begin(world: SimulatedRegions) -> Sessions:
    """Makes a ZooKeeper with the root of the domain."""
    found = Sessions(world)
    names = EPOCH.split("/")
    for path in ("/".join(names[:end]) for end in range(2, len(names) + 1)):
        found.tree.single(Create(path, b"0"), NO_ONE, 0)
    return found


def left(world: SimulatedRegions) -> str:
    """Returns the znodes that are left; empty without any."""
    if world.zookeeper is None:
        return ""
    names, _ = world.zookeeper.tree.children(f"{ROOT}/{FOLDER}", NO_ONE) or ((), None)
    return f"znodes are left: {sorted(names)[:3]}" if names else ""
