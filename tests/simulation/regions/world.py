"""Plays one run: daemons, servers, a network and a script in one process, on virtual time."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

from controller.procedures import turns
from controller.regions import comparison, domain, fencing
from controller.regions.environment import Options
from controller.regions.fencing import NotFenced
from controller.regions.term import RegionsTerm
from regent_agent import connection
from state_machines.journal.events import Row
from testing.memory.region_store import RegionDisk
from testing.simulated.regions.storage import Key, Storage
from tests.kit.simulation.loop import PROCESS, Process, SimLoop
from tests.kit.simulation.seeds import ERROR, FAULT, Violation
from tests.simulation.regions import balancing, damaging, levels, operators, shaping, znodes
from tests.simulation.regions.actions import act
from tests.simulation.regions.clients import Clients
from tests.simulation.regions.commands import settle
from tests.simulation.regions.cutting import cut_off
from tests.simulation.regions.daemons import DaemonNode
from tests.simulation.regions.invariants import Judge
from tests.simulation.regions.journals import leave
from tests.simulation.regions.network import Network
from tests.simulation.regions.plan import RegionPlan
from tests.simulation.regions.quiescence import unsettled
from tests.simulation.regions.servers import RESTART_S, ServerNode, ServerProcess

LEASE_MS: Final = 3_000
NODE_TIMEOUTS_MS: Final = (4_000, 600)
"""Of runs by turns: the shorter one is over amid opens and closes that do progress."""
SETTLES_S_MAX: Final = 240.0
"""Time after the last fault in which everything is in order again."""
ASSIGNS_S: Final = 5.0
COMMAND_S_MAX: Final = 2.0
"""Longest run of a fence command."""
COMMAND_WORKS: Final = 0.8
COMMAND_FAILS_MAX: Final = 2
"""Runs after which a fence command ends its process in any case."""
CUTS: Final = 0.3
"""Part of the runs at whose end the network of all daemons fails."""
PIECE: Final = 2
"""Regions that a daemon compares at a time: its lists are compared in several pieces, too."""
WALL_MS: Final = 1_700_000_000_000
LOGGERS: Final = ("regent.regions", "regent.procedures", "regent_agent")
EXPECTED: Final = ("failed; the daemon sends it again",)
"""Parts of logged errors that simulated services cause."""


class RegionLoop(SimLoop):
    """Has the judge look after each handle."""

    def __init__(self, judge: Judge) -> None:
        super().__init__()
        self._judge = judge

    def _run_handle(self, handle: asyncio.Handle) -> None:
        super()._run_handle(handle)
        self._judge.look(handle._context.get(PROCESS))  # type: ignore[attr-defined]


@dataclass
class Outcome:
    """The result of a run. ``digest`` covers every traced event with its time."""

    seed: int
    violation: Violation | None
    digest: str
    simulated_s: float
    handles: int
    counts: Counter[str]
    trace: list[str] = field(default_factory=list)


class SimulatedRegions(logging.Handler):
    """Holds everything of a run. ``keep``: keeps the trace. It takes the log lines of all processes."""

    def __init__(self, plan: RegionPlan, *, keep: bool = False) -> None:
        super().__init__()
        self.plan = plan
        self.keep = keep
        self.counts: Counter[str] = Counter()
        self.storage = Storage(logged=plan.fence == "log")
        self.damage = damaging.Damage(self)
        self.judge = Judge(self)
        self.loop = RegionLoop(self.judge)
        self.chance = random.Random(f"{plan.seed} world")
        self.disk = RegionDisk()
        levels.begin(self.disk, plan.level)
        network = random.Random(f"{plan.seed} network")
        self.network = Network(self.loop, network, self.counts, plan.network_ms / 1000)
        self.zookeeper = znodes.begin(self) if plan.transport == "zookeeper" else None
        self.claimant: Process | None = None
        self.claimed = 0
        self.copy: dict[str, Any] | None = None
        self.restored = False
        self.lockless = 0
        """The epoch of a claim whose lock the file system ignores: its loss is seen by the epoch alone."""
        self.wall_offset_ms = 0
        self.options = Options(
            lease_ms=LEASE_MS,
            fence=plan.fence,
            fence_command=("/fence",),
            startup_wait_ms=LEASE_MS,
            servers_min=plan.servers_min,
            open_attempts_max=plan.open_attempts_max,
            transit_max=6,
            not_running_ms_max=5_000,
            balancer_moves_together=balancing.MOVES_TOGETHER,
            balancer_spread_ms=balancing.SPREAD_MS,
            balancer_period_ms=plan.balancer_period_ms,
            balancer_joins_ms=plan.balancer_period_ms // 4,
            node_timeout_ms=NODE_TIMEOUTS_MS[plan.seed // 2 % 2],
        )
        self.daemons = {name: DaemonNode(self, name) for name in (f"d{n + 1}" for n in range(plan.daemons))}
        self.network.daemons = self.daemons
        self.processes: list[ServerProcess] = []
        self.servers = {f"s{n + 1}": ServerNode(self, f"s{n + 1}", how) for n, how in enumerate(plan.servers)}
        self.spoiled: set[int] = set()
        """Roots of families with a record that was spoiled: nobody waits for what they are about."""
        self.commands: Counter[Key] = Counter()
        self.clients = Clients(self)
        self.violation: Violation | None = None
        self.rows: list[Row] = []
        self.trace: list[str] = []
        self._digest = hashlib.sha256()

    # -- what happens

    def wall_ms(self) -> int:
        """Returns the wall clock's time."""
        return WALL_MS + int(self.loop.now_s * 1000) + self.wall_offset_ms

    @property
    def term(self) -> RegionsTerm | None:
        """Returns the term whose daemon opened the store last, once it serves."""
        for node in self.daemons.values():
            if node.store is not None and node.store.epoch == self.disk.opened:
                return node.term
        return None

    @property
    def active(self) -> Process | None:
        """Returns the process of that term, whatever became of its claim; None while there is none."""
        for node in self.daemons.values():
            if node.store is not None and node.store.epoch == self.disk.opened:
                return node.process
        return None

    def is_locked(self) -> bool:
        """Returns whether a daemon that wants the claim finds its lock taken."""
        return self.claimant is not None and self.claimant.alive and self.claimed != self.lockless

    def serving(self, table: str, start: bytes, end: bytes) -> list[tuple[Key, int]]:
        """Returns the processes that serve regions with keys of a range, with these, of those that may write still."""
        return [
            (one.key, region.region)
            for one in self.processes
            if one.alive and one.agent is not None and one.agent.serving
            if not (self.storage.logged and self.storage.is_fenced(one.key))
            for region in one.agent.owned.values()
            if region.table == table and (not end or region.start < end) and (not region.end or start < region.end)
            if not self.judge.opens.knows_nothing_of(region.region, region.token)
        ]

    def may_write(self, key: Key) -> bool:
        """Checks whether a process may serve, and write, still."""
        fenced = self.storage.logged and self.storage.is_fenced(key)
        mine = [one for one in self.processes if one.key == key and one.alive]
        return not fenced and any(one.agent is not None and one.agent.serving for one in mine)

    def note(self, text: str) -> None:
        """Traces an event."""
        line = f"{self.loop.now_s:9.3f} {text}"
        self._digest.update(line.encode())
        if self.keep:
            self.trace.append(line)

    def violated(self, invariant: str, what: str) -> None:
        """Ends the run: an invariant does not hold."""
        if self.violation is None:
            self.violation = Violation(invariant, what)
            self.note(f"VIOLATED {invariant}: {what}")
            self.loop.halt()

    def emit(self, record: logging.LogRecord) -> None:
        """Traces a log line; an error that no service caused ends the run."""
        process = PROCESS.get()
        if self.keep or record.levelno >= logging.ERROR:
            text = record.getMessage()
            self.note(f"{process.name if process else '-'}: {text}")
            crashed = "its process is ended as crashed" in text
            if crashed and not self.spoiled and not self.restored:  # a close that nobody waits for is done
                self.violated("HealthyServer", text)
            if record.exc_info and not any(part in text for part in EXPECTED):
                error = record.exc_info[1]
                self.violated(FAULT, f"{text}: {type(error).__name__}: {error}")

    # -- the run

    def play(self) -> Outcome:
        """Plays the script, heals everything, and waits until all is in order."""
        with self._surroundings():
            self.loop.set_exception_handler(self._unhandled)
            self.loop.spun = self._spun
            task = self.loop.create_task(self._story(), context=self.loop.root)
            self.loop.kept.append(task)
            self.loop.run_forever()
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error
        if self.violation is None and not task.done():
            self.violated(ERROR, "nothing is left to run")
        digest = self._digest.hexdigest()[:16]
        return Outcome(
            self.plan.seed, self.violation, digest, self.loop.now_s, self.loop.handled, self.counts, self.trace
        )

    def _spun(self, times: int) -> None:
        self.violated("Spinning", f"{times} turns of the loop without any time passing")

    async def _story(self) -> None:
        for daemon in self.daemons.values():
            daemon.start()
        for server in self.servers.values():
            server.start()
        self.clients.start()
        for action in self.plan.actions:
            await asyncio.sleep(max(0.0, action.at_s - self.loop.now_s))
            self.note(f"-- {action}")
            self.counts[action.verb] += 1
            act(self, action)
        await asyncio.sleep(1.0)
        self.note("-- heal")
        self._heal()
        ends_s = self.loop.now_s + SETTLES_S_MAX
        why, assigned_s = "nothing", 0.0
        while self.loop.now_s < ends_s:
            await asyncio.sleep(0.5)
            for server in self.servers.values():
                server.start()  # one that has learnt only now that it is fenced has ended since
            why = unsettled(self)
            if not why:
                break
            if self.loop.now_s > assigned_s + ASSIGNS_S:
                assigned_s = self.loop.now_s
                settle(self)
                operators.remove_marks(self)
                damaging.repair_all(self)
        if why:
            self.violated("liveness", why)
        elif random.Random(f"{self.plan.seed} cut").random() < CUTS:
            await cut_off(self)
        self.loop.halt()

    def _heal(self) -> None:
        network = self.network
        network.broken.clear()
        network.slow = network.lossy = 0.0
        for daemon in self.daemons.values():
            daemon.deadly = None
            daemon.thaw()
            daemon.start()
        shaping.heal(self)
        for server in self.servers.values():
            server.thaw()
            if server.behaviour != "good" or (server.current is not None and server.current.is_old):
                server.kill()
                server.behaviour = "good"
            server.start()

    def _unhandled(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.violated(FAULT, f"{context.get('message')}: {type(error).__name__}: {error}")

    def new_term(self, *args: Any, **options: Any) -> RegionsTerm:
        """Makes a term whose draws depend on the seed."""
        return RegionsTerm(*args, **options, seed=self.chance.randrange(1 << 30))

    async def run_command(self, words: Sequence[str], _timeout_s: float) -> None:
        """Stands in for the operator's command: it ends a process, and may fail; it goes on without its daemon."""
        key = words[-3], int(words[-2])
        takes_s, works = self.chance.random() * COMMAND_S_MAX, self.chance.random() < COMMAND_WORKS
        if works or self.commands[key] >= COMMAND_FAILS_MAX:
            self.loop.call_at(self.loop.now_s + takes_s, self._end_process, key, context=self.loop.root)
        self.commands[key] += 1
        self.counts["fence commands"] += 1
        await asyncio.sleep(takes_s + 0.001)
        if self.chance.random() > COMMAND_WORKS or any(one.key == key and one.alive for one in self.processes):
            raise NotFenced("the simulation has it fail")

    def _end_process(self, key: Key) -> None:
        for one in self.processes:
            if one.key == key and one.alive:
                one.kill()
                one.node.start_later(RESTART_S)

    @contextmanager
    def _surroundings(self) -> Iterator[None]:
        """Replaces what processes take from their machine, for the time of a run."""
        with ExitStack() as stack:
            for target, name, value in (
                (turns, "time", SimpleNamespace(monotonic=self.loop.time)),
                (domain, "RegionsTerm", self.new_term),
                (comparison, "PIECE", PIECE),
                (fencing, "run_command", self.run_command),
                (connection.asyncio, "open_connection", self.network.open_connection),  # type: ignore[attr-defined]
            ):
                stack.enter_context(mock.patch.object(target, name, value))
            for name in LOGGERS:
                logger = logging.getLogger(name)
                before = logger.level, logger.propagate
                logger.setLevel(logging.INFO if self.keep else logging.WARNING)
                logger.propagate = False
                logger.addHandler(self)
                stack.callback(logger.removeHandler, self)
                stack.callback(logger.setLevel, before[0])
                stack.callback(setattr, logger, "propagate", before[1])
            stack.enter_context(self.judge.watching())
            yield


def play(plan: RegionPlan, *, keep: bool = False, journals: Path | None = None) -> Outcome:
    """Plays a plan. ``journals``: a folder where the daemons leave their journals."""
    world = SimulatedRegions(plan, keep=keep)
    outcome = world.play()
    if journals is not None:
        leave(world.rows, plan.seed, journals)
    return outcome
