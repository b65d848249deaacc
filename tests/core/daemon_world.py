"""Whole daemons on the controller's world: their terms tell brokers that only record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from configs.settings import Settings
from controller.daemon.daemon import Daemon
from controller.role.lease import Lease
from controller.role.mode import Mode
from controller.term.term import Term
from metadata_store import paths
from testing.memory import MemoryZooKeeper
from tests.core.controller_parts import DAEMON, SECRET, Script
from tests.core.controller_world import World
from tests.core.role_kit import settings_for
from tests.polling import eventually


class DaemonRun:
    """A whole daemon on the world's ZooKeeper, its lease on the loop's clock."""

    def __init__(self, w: World, settings: Settings, *, endpoint_beside: bool = False) -> None:
        self.w = w
        self.script = Script()
        self.sessions: list[MemoryZooKeeper] = []
        self.daemon = Daemon(
            settings, self._connect, new_lease=loop_lease, secret=SECRET, endpoint_beside=endpoint_beside
        )
        self.task = asyncio.create_task(self.daemon.run())

    def _connect(self) -> MemoryZooKeeper:
        digest = self.daemon.settings.zookeeper.digest
        credentials = digest.get_secret_value() if digest is not None else None
        self.sessions.append(MemoryZooKeeper(self.w.server, credentials=credentials, hooks=self.script))
        return self.sessions[-1]

    @property
    def session(self) -> int:
        """Id of the present session."""
        return self.sessions[-1].session_id

    @property
    def epoch_open(self) -> int | None:
        """The epoch in which it would write or send now."""
        term = self.daemon.term
        return term.claim.epoch if term is not None and term.gate.open() else None

    async def serving(self) -> Term:
        """Waits until it is active."""
        await eventually(lambda: self.daemon.mode is Mode.ACTIVE and self.daemon.term is not None)
        assert self.daemon.term is not None
        return self.daemon.term

    async def says(self, text: str) -> None:
        """Waits until its reason has a text in it."""
        try:
            await eventually(lambda: text in self.daemon.why)
        except AssertionError:
            raise AssertionError(f"it says {self.daemon.mode}: {self.daemon.why}") from None

    async def stop(self, within_s: float = 10.0) -> None:
        """A clean stop; ``within_s`` counts on the loop's clock."""
        self.daemon.stop()
        await asyncio.wait_for(self.task, within_s)

    async def crash(self) -> None:
        """kill -9."""
        for zk in self.sessions:
            zk.on_watch = zk.on_state = zk.on_state_thread = None
        if not self.task.done():
            self.task.cancel()
            await asyncio.wait({self.task})
        for zk in self.sessions:
            if zk.session_id in self.w.server._sessions:
                self.w.server.expire(zk.session_id)


def loop_lease(session_timeout_s: float, fraction: float) -> Lease:
    """A lease on the event loop's clock."""
    return Lease(session_timeout_s, asyncio.get_running_loop().time, fraction)


@asynccontextmanager
async def daemon(
    w: World, controller_id: int = DAEMON, *, hold: bool = False, endpoint_beside: bool = False, listed: bool = True
) -> AsyncIterator[DaemonRun]:
    """A running daemon, killed at the end if it still runs."""
    settings = settings_for(Path("/nowhere"), hold=hold, digest="regent:secret" if hold else None)
    chosen = settings.controller.model_copy(update={"id": controller_id})
    admin = settings.admin.model_copy(update={"listed": listed})
    made = settings.model_copy(update={"controller": chosen, "admin": admin})
    run = DaemonRun(w, made, endpoint_beside=endpoint_beside)
    try:
        yield run
    finally:
        await run.crash()


def now_s() -> float:
    return asyncio.get_running_loop().time()


def holder(w: World) -> int | None:
    """Session that ``/controller`` belongs to; 0 where it is persistent, None where there is none."""
    node = w.node(paths.CONTROLLER)
    return None if node is None else node.stat.ephemeral_owner


def epoch(w: World) -> int:
    node = w.node(paths.CONTROLLER_EPOCH)
    return int(node.data or b"0") if node is not None else 0


async def ruling(w: World) -> None:
    """A topic, and the role is regent's."""
    await w.topic("t", (1, 2, 3), leaders=True)
    await w.give_role_to("regent")


def failing(times: int) -> Any:
    """The first ``times`` failovers end in an error."""
    from state_machines.decisions.failover import failover

    left = times

    def decide(draft: Any, unclean: Any) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise ValueError("a bug")
        failover(draft, unclean)

    return mock.patch("controller.handlers.failover.failover", decide)
