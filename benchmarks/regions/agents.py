"""Runs simulated servers with the agent in a process of their own, which answer by reports or by znodes.

``python -m benchmarks.regions.agents PORT COUNT ZOOKEEPER CHROOT HELD`` runs until its standard input ends. ZOOKEEPER
is the port of the store whose znodes they move, below the CHROOT of this number; with 0 they report. With HELD each
open waits. For each line of its input it lets opens go, and prints how many znodes all servers have written by then;
where the line has a number, once so many opens are done.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

import uvloop
from msgspec.structs import replace

from benchmarks.regions.world import until
from controller.main import tune
from controller.regions.zookeeper_claim import ROOT
from metadata_store.catalog.answers import NodeAnswers
from metadata_store.kazoo_adapter import KazooZooKeeper
from metadata_store.port import Check, Write
from regent_agent.agent import Agent
from regent_agent.options import AgentOptions
from regent_agent.protocol import Open
from regent_agent.service import OpenedRegion, RegionService

SESSION_MS: Final = 60_000
CONNECT_S: Final = 30.0
INCARNATION: Final = 1
HELD_MAX: Final = 20_000
"""Opens that one server has under way at once where they wait."""


class Written:
    """Counts znodes that sessions write."""

    def __init__(self) -> None:
        self.count = 0

    async def before(self, ops: Sequence[Write]) -> None:
        """Counts the znodes of a write; checks write none."""
        self.count += sum(not isinstance(one, Check) for one in ops)

    async def after(self, ops: Sequence[Write]) -> None:
        """Does nothing."""


class Waiting(RegionService):
    """Opens and closes at once, once ``free`` is set."""

    def __init__(self, free: asyncio.Event) -> None:
        self._free = free

    async def open(self, region: OpenedRegion) -> int:
        """Opens a region; returns its sequence number."""
        await self._free.wait()
        return region.sequence + 1

    async def close(self, region: OpenedRegion) -> None:
        """Does nothing."""


class CountedAnswers(NodeAnswers):
    """Moves znodes, and counts the opens that are done."""

    done = 0

    async def opened(self, operation: Open, sequence: int) -> bool:
        """Moves the znode to OPENED."""
        is_open = await super().opened(operation, sequence)
        self.done += 1
        return is_open

    @property
    def has_marks(self) -> bool:
        """Checks whether marks are to be deleted still."""
        return self._forgetting is not None and not self._forgetting.done()


async def connected(port: int, chroot: int, written: Written) -> KazooZooKeeper:
    """Opens a session whose writes are counted."""
    zk = KazooZooKeeper(f"127.0.0.1:{port}/{chroot}", session_timeout_ms=SESSION_MS)
    await zk.connect(CONNECT_S)
    zk.hooks = written
    return zk


async def main(port: int, count: int, zookeeper: int, chroot: int, held: int) -> None:
    """Runs so many servers until standard input ends."""
    tune()
    logging.basicConfig(level=logging.ERROR)
    print("starting", flush=True)
    free, written = asyncio.Event(), Written()
    answers: list[CountedAnswers] = []
    if not held:
        free.set()
    async with AsyncExitStack() as stack:
        for name in (f"s{number}" for number in range(count)):
            mine = None
            if zookeeper:
                zk = await connected(zookeeper, chroot, written)
                stack.push_async_callback(zk.close)
                mine = CountedAnswers(zk, ROOT, partial(_process, name))
                await mine.appears()
                answers.append(mine)
            options = AgentOptions((("127.0.0.1", port),), name, f"{name}:1", incarnation=INCARNATION)
            options = replace(options, side_by_side_max=HELD_MAX) if held else options
            agent = Agent(Waiting(free), options, answers=mine)
            stack.push_async_callback(agent.stop)
            await agent.start()
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            free.set()
            await until(partial(_have_opened, answers, int(line)))
            await until(lambda: not any(one.has_marks for one in answers))
            print(written.count, flush=True)


def _have_opened(answers: Sequence[CountedAnswers], wanted: int) -> bool:
    return sum(one.done for one in answers) >= wanted


def _process(name: str) -> tuple[str, int]:
    return name, INCARNATION


if __name__ == "__main__":
    uvloop.run(main(*map(int, sys.argv[1:6])))
