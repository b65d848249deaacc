"""Measures what a rolling restart leaves (B2): when servers have their shares again, and what moved more than once."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from benchmarks.arena import say
from benchmarks.regions.plan import Shape, disk, row
from benchmarks.regions.world import MeasuredRegions, servers, until, world
from benchmarks.results import Row
from controller.regions.procedures import balance
from controller.regions.procedures.balance_plan import BALANCE_TASK, BalanceTask
from controller.regions.procedures.messages import CRASH, Crash
from controller.regions.procedures.servers import DRAIN
from state_machines.procedures.record import Caller

ROLLED: Final = Shape(10_000, 20)


async def rolled(rounds: int = 1) -> list[Row]:
    """B2: each server is drained, ended and started again; from the last start until all have their shares."""
    times, twice, spreads = list[float](), list[float](), list[float]()
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="regions-", dir=disk()) as folder:
            async with world(Path(folder), balances=True) as found, AsyncExitStack() as stack:
                names = range(ROLLED.servers)
                children = [await stack.enter_async_context(servers(found.port, 1, one)) for one in names]
                await found.until(ROLLED.servers)
                await found.create(ROLLED.regions)
                for number, child in zip(names, children, strict=True):
                    await _drained(found, f"s{number}")
                    child.kill()
                    await stack.enter_async_context(servers(found.port, 1, number))
                    await until(lambda name=f"s{number}": _is_back(found, name))  # type: ignore[misc]
                spreads.append(_spread(found))
                began_s = time.perf_counter()
                await until(lambda: _spread(found) <= 1 and not found.term.balancing.running())
                times.append(time.perf_counter() - began_s)
                moves = _moved(found)
                twice.append(100 * sum(count > 1 for count in moves.values()) / ROLLED.regions)
                say(f"B2: {times[-1]:.1f} s, {len(moves)} regions moved by balances, {twice[-1]:.1f} % more than once")
    what = "rolling restart: from the last start until no server has two regions more than another"
    return [
        row("B2", ROLLED, what, "s", times),
        row("B2 twice", ROLLED, "regions that balances moved more than once", "%", twice),
        row("B2 before", ROLLED, "difference between servers at the last start", "regions", spreads),
    ]


async def _drained(found: MeasuredRegions, name: str) -> None:
    server = found.term.env.model.current(name)
    assert server is not None
    pid = await found.term.engine.submit(DRAIN, CRASH.encode(Crash(*server.key)), Caller("benchmark"))
    await found.term.engine.result(pid)


def _is_back(found: MeasuredRegions, name: str) -> bool:
    """Checks whether the next process of a server is there."""
    return any(one.name == name and not one.leaving for one in found.term.env.model.online())


def _spread(found: MeasuredRegions) -> int:
    counts = [len(one.regions) for one in found.term.env.model.online()]
    return max(counts) - min(counts)


def _moved(found: MeasuredRegions) -> Counter[int]:
    """Counts the moves that balances have begun, by region."""
    moves = Counter[int]()
    for one in found.term.engine.records.values():
        if one.kind == balance.NAME:
            task: BalanceTask = BALANCE_TASK.decode(one.data)
            moves.update(move.region for move in task.moves[: task.begun] if not move.skip)
    return moves
