"""Runs whole daemons, or their queue for the role alone, in the controller's world, whose brokers record requests."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from configs.settings import Settings
from controller.daemon.daemon import Daemon
from controller.daemon.state import Mode
from controller.kafka.term.term import Term
from controller.role.claim import Claim
from controller.role.lease import Lease
from controller.role.own_znodes import Process, this_process
from metadata_store import paths
from metadata_store.port import Node, Op, Write
from testing.memory import MemoryZooKeeper
from tests.kit.deadlines import VirtualTimeLoop, eventually
from tests.kit.kafka.parts import DAEMON, SECRET, Script
from tests.kit.kafka.role import changed, settings_for
from tests.kit.kafka.world import KafkaWorld, Seat, world


class DaemonRun:
    """Runs a daemon on the world's ZooKeeper, with its lease on the loop's clock."""

    def __init__(self, w: KafkaWorld, settings: Settings, *, endpoint_beside: bool = False) -> None:
        self.w = w
        self.script = Script()
        self.sessions: list[MemoryZooKeeper] = []
        self.client = MemoryZooKeeper
        self.daemon = Daemon(
            settings, self._connect, new_lease=loop_lease, secret=SECRET, endpoint_beside=endpoint_beside
        )
        self.task = asyncio.create_task(self.daemon.run())

    def _connect(self) -> MemoryZooKeeper:
        digest = self.daemon.settings.zookeeper.digest
        credentials = digest.get_secret_value() if digest is not None else None
        self.sessions.append(self.client(self.w.server, credentials=credentials, hooks=self.script))
        return self.sessions[-1]

    @property
    def session(self) -> int:
        """Returns the id of the present session."""
        return self.sessions[-1].session_id

    @property
    def epoch_open(self) -> int | None:
        """Returns the epoch in which the daemon may write and send now."""
        term = self.daemon.term
        return term.claim.epoch if term is not None and term.gate.open() else None

    async def serving(self) -> Term:
        """Waits until the daemon is active."""
        await eventually(lambda: self.daemon.mode is Mode.ACTIVE and self.daemon.term is not None)
        assert self.daemon.term is not None
        return self.daemon.term

    async def reason_contains(self, text: str) -> None:
        """Waits until the reason of the mode contains a text."""
        try:
            await eventually(lambda: text in self.daemon.why)
        except AssertionError:
            raise AssertionError(f"the daemon is {self.daemon.mode}: {self.daemon.why}") from None

    async def stop(self, within_s: float = 10.0) -> None:
        """Stops the daemon cleanly; ``within_s`` counts on the loop's clock."""
        self.daemon.stop()
        await asyncio.wait_for(self.task, within_s)

    async def crash(self) -> None:
        """Ends the daemon as ``kill -9`` does."""
        for zk in self.sessions:
            zk.on_watch = zk.on_state = zk.on_state_thread = None
        if not self.task.done():
            self.task.cancel()
            await asyncio.wait({self.task})
        for zk in self.sessions:
            if zk.session_id in live_sessions(self.w):
                self.w.server.expire(zk.session_id)


def loop_lease(session_timeout_s: float, fraction: float) -> Lease:
    """Creates a lease on the event loop's clock."""
    return Lease(session_timeout_s, asyncio.get_running_loop().time, fraction)


@asynccontextmanager
async def daemon(
    w: KafkaWorld,
    controller_id: int = DAEMON,
    *,
    hold: bool = False,
    endpoint_beside: bool = False,
    listed: bool = True,
) -> AsyncIterator[DaemonRun]:
    """Runs a daemon; kills it at the end if it still runs."""
    digest = "regent:secret" if hold else None
    settings = settings_for(Path("/nowhere"), hold=hold, digest=digest, controller_id=controller_id)
    run = DaemonRun(w, changed(settings, "admin", listed=listed), endpoint_beside=endpoint_beside)
    try:
        yield run
    finally:
        await run.crash()


def live_sessions(w: KafkaWorld) -> set[int]:
    """Returns the sessions that ZooKeeper knows."""
    return set(w.server._sessions)


def idle_turns() -> Callable[[], float]:
    """Returns a function that gives the turns of the loop per second since this call."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    turns, since_s = loop.turns, now_s()
    return lambda: (loop.turns - turns) / (now_s() - since_s)


def now_s() -> float:
    return asyncio.get_running_loop().time()


def holder(w: KafkaWorld) -> int | None:
    """Returns the session that owns ``/controller``; 0 where it is persistent, None without one."""
    node = w.node(paths.CONTROLLER)
    return None if node is None else node.stat.ephemeral_owner


def epoch(w: KafkaWorld) -> int:
    node = w.node(paths.CONTROLLER_EPOCH)
    return int(node.data or b"0") if node is not None else 0


async def regent_has_role(w: KafkaWorld) -> None:
    """Creates a topic and gives the role to regent."""
    await w.topic("t", (1, 2, 3), leaders=True)
    await w.give_role_to("regent")


def failing(times: int) -> Any:
    """Lets the first ``times`` failovers raise an error."""
    from controller.kafka.term.failover import touched_rows

    left = times

    async def touched(c: Any) -> Any:
        nonlocal left
        left -= 1
        if left >= 0:
            raise ValueError("a bug")
        return await touched_rows(c)

    return mock.patch("controller.kafka.term.failover.touched_rows", touched)


DIGEST = "regent:secret"


def process(**changes: Any) -> Process:
    """Returns a daemon process of this machine; by default it still runs."""
    return msgspec.structs.replace(this_process(DAEMON), **changes)


def dead_pid() -> int:
    """Returns the id of a process that has ended."""
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


@asynccontextmanager
async def queued(number: int = 1) -> AsyncIterator[tuple[KafkaWorld, list[Seat]]]:
    """Queues ``number`` daemons with ids of their own; the role is regent's."""
    async with world() as w:
        yield w, [await w.seat(me=process(id=DAEMON + n)) for n in range(number)]


def unseated(w: KafkaWorld, **options: Any) -> Seat:
    """Creates a daemon that has not queued yet."""
    w.seats.append(Seat(w, **options))
    return w.seats[-1]


def controller(w: KafkaWorld) -> Node:
    """Returns the znode ``/controller``."""
    node = w.node(paths.CONTROLLER)
    assert node is not None
    return node


class Recorder:
    """Keeps the operations of every write."""

    def __init__(self) -> None:
        self.writes: list[Sequence[Write]] = []

    async def before(self, ops: Sequence[Write]) -> None:
        self.writes.append(ops)

    async def after(self, ops: Sequence[Write]) -> None: ...


async def claimed(seat: Seat) -> tuple[Claim, list[Op]]:
    """Claims the role; returns the claim and the operations of its multi."""
    recorder = seat.zk.hooks = Recorder()
    claim = await seat.role.claim()
    seat.zk.hooks = seat.script
    return claim, list(recorder.writes[-1])  # type: ignore[arg-type]
