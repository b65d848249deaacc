"""Servers of the simulation: each process runs the real agent beside a simulated service."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

from regent_agent.agent import Agent, Died
from regent_agent.options import AgentOptions
from regent_agent.service import OpenedRegion
from testing.simulated.regions.behaviours import BY_NAME
from testing.simulated.regions.service import FEATURES, SimulatedService
from testing.simulated.regions.storage import Key, is_in
from tests.kit.simulation.loop import Life, Process
from tests.simulation.regions import znodes
from tests.simulation.regions.network import PORT, SERVERS_SECRET

if TYPE_CHECKING:
    from tests.simulation.regions.world import SimulatedRegions

RESTART_S: Final = 0.5
"""Time from the end of a process to the begin of the next one, where a supervisor starts it."""
QUEUE_MAX: Final = 1_000
CLOCK_DIGITS: Final = 9
"""Digits of a server's clock behind the second, as on a machine: the loop's clock can tell its times apart."""


class ServerProcess:
    """One process of a server."""

    def __init__(self, node: ServerNode, incarnation: int, behaviour: str) -> None:
        world = node.world
        self.node = node
        self.key: Key = node.name, incarnation
        self.process = Process(world.loop, f"{node.name},{incarnation}")
        self.behaviour = BY_NAME[behaviour](random.Random(f"{world.plan.seed} {node.name} {incarnation}"))
        self.service = SimulatedService(
            self.key, world.storage, self.behaviour, world.judge.opens.opened, lambda: node.late_s
        )
        self.is_old = node.is_old
        self.agent: Agent | None = None
        self.over = asyncio.Event()
        """Whether its ZooKeeper session has ended."""
        self.left = False
        self.held_s = 0.0
        """Time in which its machine was held, and that its clock does not count."""
        self.process.start(self._run())

    async def _run(self) -> None:
        world, chance = self.node.world, random.Random(f"{self.key}")
        options = AgentOptions(
            tuple((name, PORT) for name in world.daemons),
            self.node.name,
            self.node.address,
            incarnation=self.key[1],
            secret=SERVERS_SECRET,
            side_by_side_max=3,
            queue_max=QUEUE_MAX,
            features=() if self.is_old else FEATURES,
        )
        answers = None
        if world.zookeeper is not None and not self.is_old:
            answers = await znodes.answers_of(world, self.process, self.key, self.over.set)
        agent = self.agent = Agent(
            self.service,
            options,
            clock=lambda: round(world.loop.time() - self.held_s, CLOCK_DIGITS),
            wall=lambda: world.wall_ms() / 1000,
            jitter=chance.random,
            answers=answers,
        )
        self.service.independent = agent.independent
        if self.behaviour.queue_max is not None:  # less than an option may be
            agent._work._queue_max = self.behaviour.queue_max
        waits = [asyncio.create_task(agent.died.wait()), asyncio.create_task(self.behaviour.crashes.wait())]
        waits.append(asyncio.create_task(self.over.wait()))
        try:
            await agent.start()
        except Died:
            self.kill()
        if self.behaviour.queue_max is not None:
            await asyncio.sleep(2.0)
            agent._work._queue_max = QUEUE_MAX
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        again = agent.died.is_set() or self.over.is_set() or self.behaviour.restarts
        world.counts["ended by the agent" if agent.died.is_set() else "crashed by itself"] += 1
        self.kill()
        if again:
            self.node.start_later(RESTART_S)

    @property
    def alive(self) -> bool:
        """Returns whether the process may do something still."""
        return self.process.alive

    def serves(self, region: int) -> OpenedRegion | None:
        """Returns a region that this process believes to be its own, to be served now."""
        if self.agent is None or not self.alive or not self.agent.owns(region):
            return None
        return self.agent.owned[region]

    def serves_key(self, table: str, key: bytes) -> OpenedRegion | None:
        """Returns a region with a key that this process believes to be its own, to be served now."""
        if self.agent is None or not self.alive or not self.agent.serving:
            return None
        owned = self.agent.owned.values()
        return next((one for one in owned if one.table == table and is_in(key, one.start, one.end)), None)

    def kill(self) -> None:
        """Kills the process."""
        self.process.kill()
        self.node.world.network.ended(lambda one: one.client is self.process)


class ServerNode:
    """A server by its name, over all its processes. ``processes``: those that may do something still."""

    def __init__(self, world: SimulatedRegions, name: str, behaviour: str) -> None:
        self.world = world
        self.name = name
        self.address = f"{name}:9000"
        self.behaviour = behaviour
        self.current: ServerProcess | None = None
        self.held_until_s = 0.0
        """Until when its machine is held."""
        self.late_s = 0.0
        """How long its processes wait until they say that a region is independent."""
        self.is_old = int(name[1:]) <= world.plan.old_servers
        """Whether its next process is of a version without features."""
        self._incarnation = 0

    @property
    def processes(self) -> list[ServerProcess]:
        """Returns the processes with this name that may do something still."""
        return [one for one in self.world.processes if one.node is self]

    def start(self) -> None:
        """Starts a process, unless one lives that is not frozen."""
        if self.current is not None and self.current.alive:
            return
        self._incarnation = max(self._incarnation + 1, int(self.world.loop.now_s * 1000))
        self.current = ServerProcess(self, self._incarnation, self.behaviour)
        self.is_old = False
        self.world.processes.append(self.current)

    def start_later(self, delay_s: float) -> None:
        """Starts a process after a while."""
        loop = self.world.loop
        loop.call_at(loop.now_s + delay_s, self.start, context=loop.root)

    def kill(self) -> None:
        """Kills the current process."""
        if self.current is not None:
            self.current.kill()

    def replace(self) -> None:
        """Starts another process beside the current one, which goes on as a zombie."""
        self.current = None
        self.start()

    def freeze(self) -> None:
        """Freezes the current process."""
        if self.current is not None:
            self.current.process.halt(Life.FROZEN)

    def hold(self, for_s: float) -> None:
        """Holds the machine of the current process, as a hypervisor does, until it is thawed."""
        if self.current is not None:
            self.held_until_s = max(self.held_until_s, self.world.loop.now_s + for_s)
            self.current.held_s += for_s
            self.freeze()

    def thaw(self) -> None:
        """Thaws all processes."""
        for one in self.processes:
            one.process.resume()
