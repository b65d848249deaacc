"""Daemons in the queue for the role, without the daemon around them."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from controller.role.claim import Claim
from controller.role.own_znodes import Process, this_process
from metadata_store.port import Op, Write
from tests.core.controller_parts import DAEMON
from tests.core.controller_world import Seat, World, world

DIGEST = "regent:secret"


def process(**changes: Any) -> Process:
    """A daemon of this machine; by default one that still runs."""
    return msgspec.structs.replace(this_process(DAEMON), **changes)


def dead_pid() -> int:
    """A process id that was in use and is not any more."""
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


@asynccontextmanager
async def queued(number: int = 1, **options: Any) -> AsyncIterator[tuple[World, list[Seat]]]:
    """``number`` daemons with ids of their own in the queue, the role regent's."""
    async with world() as w:
        seats = [await w.seat(me=process(id=DAEMON + n), **options) for n in range(number)]
        yield w, seats


class Recorder:
    """Keeps the operations of every write."""

    def __init__(self) -> None:
        self.writes: list[Sequence[Write]] = []

    async def before(self, ops: Sequence[Write]) -> None:
        self.writes.append(ops)

    async def after(self, ops: Sequence[Write]) -> None: ...


async def claimed(seat: Seat) -> tuple[Claim, list[Op]]:
    """A won claim, and the operations of its multi."""
    recorder = seat.zk.hooks = Recorder()
    claim = await seat.role.claim()
    seat.zk.hooks = seat.script
    return claim, list(recorder.writes[-1])  # type: ignore[arg-type]
