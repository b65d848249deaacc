"""Makes agents with a recording service for tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from regent_agent.agent import Agent
from regent_agent.options import AgentOptions
from regent_agent.protocol import Close, Open, Task
from regent_agent.service import OpenedRegion
from tests.unit.regent_agent.stand_in import StandIn


class Recorded:
    """A service that notes its calls. ``hold`` keeps regions from finishing their open or close."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.hold: dict[int, asyncio.Event] = {}
        self.failures: dict[str, list[BaseException]] = {}
        self.inside = 0
        self.inside_max = 0
        self.sequence = 100

    async def open(self, region: OpenedRegion) -> int:
        await self._do("open", region.region, region.token)
        self.sequence += 1
        return self.sequence

    async def close(self, region: OpenedRegion) -> None:
        await self._do("close", region.region, region.token)

    async def fence(self, server: str, incarnation: int) -> list[str]:
        await self._do("fence", server, incarnation)
        return [f"{server}/1", f"{server}/2"]

    async def split(self, server: str, incarnation: int, part: str) -> None:
        await self._do("split", server, part)

    def suspend(self) -> None:
        self.calls.append(("suspend",))

    def resume(self) -> None:
        self.calls.append(("resume",))

    async def _do(self, what: str, *entities: Any) -> None:
        self.calls.append((what, *entities))
        self.inside += 1
        self.inside_max = max(self.inside_max, self.inside)
        try:
            if (event := self.hold.get(entities[0])) is not None:
                await event.wait()
            if failures := self.failures.get(what):
                raise failures.pop(0)
        finally:
            self.inside -= 1


class Clock:
    """A clock that only the test advances."""

    def __init__(self, now_s: float = 1_000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def options(*daemons: StandIn, **others: Any) -> AgentOptions:
    addresses = tuple(daemon.address for daemon in daemons)
    return AgentOptions(**{"daemons": addresses, "server": "s1", "address": "s1:7000", "incarnation": 5, **others})


@asynccontextmanager
async def started(
    service: Recorded, *daemons: StandIn, clock: Callable[[], float] = time.monotonic, **others: Any
) -> AsyncIterator[Agent]:
    """Runs an agent that is registered."""
    agent = Agent(service, options(*daemons, **others), jitter=lambda: 0.0, clock=clock)
    try:
        async with asyncio.timeout(10):
            await agent.start()
        yield agent
    finally:
        await agent.stop()


def opens(pid: int, region: int, token: int | None = None, **others: Any) -> Open:
    return Open(pid, region, pid if token is None else token, "t", b"", b"", **others)


def closes(pid: int, region: int, token: int) -> Close:
    return Close(pid, region, token)


def task(pid: int, what: str, part: str = "") -> Task:
    return Task(pid, what, "s9", 3, part)
