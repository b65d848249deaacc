"""Creates daemons in the queue for the role, without terms around them."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from controller.role.claim import Claim
from controller.role.own_znodes import Process, this_process
from metadata_store import paths
from metadata_store.port import Node, Op, Write
from tests.kit.controller_parts import DAEMON
from tests.kit.controller_world import Seat, World, world

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
async def queued(number: int = 1) -> AsyncIterator[tuple[World, list[Seat]]]:
    """Queues ``number`` daemons with ids of their own; the role is regent's."""
    async with world() as w:
        yield w, [await w.seat(me=process(id=DAEMON + n)) for n in range(number)]


def unseated(w: World, **options: Any) -> Seat:
    """Creates a daemon that has not queued yet."""
    w.seats.append(Seat(w, **options))
    return w.seats[-1]


def controller(w: World) -> Node:
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
