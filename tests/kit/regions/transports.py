"""A daemon on a ZooKeeper, and servers with the real agent that answer by polls, or by znodes of their own sessions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from brokers.regions.listener import RegionListener
from controller.regions.dispatcher import DispatchLimits
from controller.regions.domain import RegionsDomain
from controller.regions.environment import Options
from controller.regions.term import RegionsTerm
from controller.regions.transport.nodes import Nodes
from controller.regions.zookeeper_claim import ROOT
from controller.regions.zookeeper_store import ZooKeeperOpened
from metadata_store.catalog.answers import NodeAnswers
from metadata_store.catalog.unassigned import decode, folder_of
from metadata_store.port import Node as Znode
from metadata_store.port import ZooKeeper
from metadata_store.records.port import StoreFailed
from regent_agent.agent import Agent
from regent_agent.options import AgentOptions
from regent_agent.service import OpenedRegion, RegionService
from state_machines.procedures.record import Caller, Record
from state_machines.regions.unassigned import Node
from tests.kit.deadlines import eventually

OPTIONS = Options(lease_ms=1_500, node_timeout_ms=5_000, startup_wait_ms=1_000, balancer_period_ms=0)
"""No open of a loaded machine takes until the time-out of its znode; stories of that wait for it."""
CONNECT_S = 30.0


class Storage:
    """What all servers share. ``served``: the owner that serves each region; none may have two."""

    def __init__(self) -> None:
        self.tokens: dict[int, int] = {}
        self.served: dict[int, str] = {}
        self.opens: list[tuple[str, int]] = []


class Member(RegionService):
    """The service of one server. ``held``: regions whose open or close waits; ``broken``: those that it cannot open."""

    def __init__(self, name: str, storage: Storage) -> None:
        self.name, self.storage = name, storage
        self.held: dict[int, asyncio.Event] = {}
        self.broken: set[int] = set()
        self.slow_s = 0.0

    async def open(self, region: OpenedRegion) -> int:
        if (event := self.held.get(region.region)) is not None:
            await event.wait()
        await asyncio.sleep(self.slow_s)
        if region.region in self.broken:
            raise OSError("its file is broken")
        assert region.token >= self.storage.tokens.get(region.region, 0), "the storage refuses a low token"
        self.storage.tokens[region.region] = region.token
        self.storage.opens.append((self.name, region.region))
        return region.sequence + 1

    async def close(self, region: OpenedRegion) -> None:
        if (event := self.held.get(region.region)) is not None:
            await event.wait()


class Unseen(NodeAnswers):
    """Makes no ephemeral znode, as where the session has ended."""

    async def appears(self) -> None:
        """Does nothing."""


class TransportsWorld:
    """Daemons one after the other, and servers by name. ``noded``: whether servers answer by znodes.

    ``of_servers``: makes the sessions of servers, where these have others than daemons.
    """

    def __init__(
        self,
        connect: Callable[[], ZooKeeper],
        *,
        noded: bool,
        options: Options = OPTIONS,
        of_servers: Callable[[], ZooKeeper] | None = None,
    ) -> None:
        self.noded, self.options = noded, options
        self.made: list[ZooKeeper] = []
        """Sessions in the order in which they were made."""
        self._connect = connect
        self._of_servers = of_servers or self.connect
        self.storage = Storage()
        self.members: dict[str, Member] = {}
        self.agents: dict[str, Agent] = {}
        self.answers: dict[str, NodeAnswers] = {}
        self.sessions: dict[str, ZooKeeper] = {}
        self._port = 0
        self.daemons_zk: ZooKeeper
        self.zk = self.connect()
        self._running: asyncio.Task[None] | None = None
        self.listener: RegionListener
        self.domain: RegionsDomain

    def connect(self) -> ZooKeeper:
        """Makes a session."""
        self.made.append(self._connect())
        return self.made[-1]

    @property
    def term(self) -> RegionsTerm:
        assert self.domain.term is not None
        return self.domain.term

    @property
    def nodes_of_term(self) -> Nodes:
        """Returns the znodes of the present term."""
        assert self.term._nodes is not None
        return self.term._nodes

    @property
    def faults(self) -> Counter[str]:
        """Returns what did not go as it should with znodes, by its cause."""
        return self.domain.counters.node_faults

    async def begin(self) -> None:
        """Starts a daemon, and waits until it is active."""
        self.listener = RegionListener("127.0.0.1", self._port)
        self.domain = RegionsDomain(
            partial(ZooKeeperOpened.open, self.connect, lease_ms=self.options.lease_ms, noded=self.noded),
            self.listener,
            self.options,
            wall_ms=lambda: int(asyncio.get_running_loop().time() * 1_000),
            limits=DispatchLimits(delay_ms=5),
            placement="retain",
        )
        self._running = asyncio.ensure_future(self.domain.run())
        await eventually(lambda: self.domain.term is not None)
        self._port, self.daemons_zk = self.listener.port, self.made[-1]

    async def die(self) -> None:
        """Ends the daemon."""
        assert self._running is not None
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    async def start(self, name: str, incarnation: int = 1, *, appears: bool = True) -> None:
        """Starts a process of a server. ``appears``: with an ephemeral znode, where it answers by znodes."""
        member = self.members.setdefault(name, Member(name, self.storage))
        answers = None
        if self.noded:
            zk = self.sessions[name] = self._of_servers()
            await zk.connect(CONNECT_S)
            kind = NodeAnswers if appears else Unseen
            answers = self.answers[name] = kind(zk, ROOT, lambda: (name, incarnation))
        daemons = (("127.0.0.1", self.listener.port),)
        options = AgentOptions(daemons=daemons, server=name, address=f"{name}:1", incarnation=incarnation)
        self.agents[name] = agent = Agent(member, options, answers=answers)
        await agent.start()

    async def kill(self, name: str) -> None:
        """Ends the process of a server at once."""
        await self.agents.pop(name).stop()
        if name in self.sessions:
            await self.sessions.pop(name).close()

    async def run(self, kind: str, data: bytes) -> Record:
        """Has a procedure run to its end, also over a failover."""
        caller = Caller("User:ops", nonce=f"{kind} {data!r}")
        while True:
            try:
                pid = await self.term.engine.submit(kind, data, caller)
                return await self.term.engine.result(pid)
            except StoreFailed:
                await eventually(lambda: self.domain.term is not None)

    def owners(self) -> dict[int, str]:
        """Returns who serves each region, and checks that no region has two owners."""
        found: dict[int, str] = {}
        for name, agent in self.agents.items():
            for region in agent.owned:
                assert region not in found, f"{found[region]} and {name} have region {region}"
                found[region] = name
        return found

    async def settled(self, regions: int) -> dict[int, str]:
        """Waits until so many regions are open where the catalog says, and no znode is left."""

        async def is_so() -> bool:
            model = self.term.env.model
            stored = {one.id: one.server.name for one in model.regions.values() if one.server is not None}
            busy = list(self.term.engine.live()) or self.term.env.left
            return not busy and len(stored) == regions and stored == self.owners() and not await self.nodes()

        await eventually(is_so)
        return self.owners()

    async def nodes(self) -> dict[int, Node]:
        """Reads the znodes of regions in transition."""
        await self.zk.sync()
        names, _ = await self.zk.children(folder_of(ROOT)) or ((), None)
        found = await self.zk.read_many([f"{folder_of(ROOT)}/{name}" for name in names])
        both = zip(names, found, strict=True)
        return {int(name): decode(one.data, int(name)) for name, one in both if isinstance(one, Znode)}

    async def end(self) -> None:
        for agent in self.agents.values():
            await agent.stop()
        await self.die()
        for zk in (*self.sessions.values(), self.zk):
            await zk.close()


@asynccontextmanager
async def world(
    connect: Callable[[], ZooKeeper],
    *servers: str,
    noded: bool,
    options: Options = OPTIONS,
    of_servers: Callable[[], ZooKeeper] | None = None,
) -> AsyncIterator[TransportsWorld]:
    """Runs a daemon with servers."""
    found = TransportsWorld(connect, noded=noded, options=options, of_servers=of_servers)
    await found.zk.connect(CONNECT_S)
    await found.begin()
    try:
        for name in servers:
            await found.start(name)
        yield found
    finally:
        await found.end()


Story = Callable[[TransportsWorld], Awaitable[Any]]
