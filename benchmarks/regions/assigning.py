"""Measures the assignment of all regions of a table (A1), beside HBase where it is there, and their closing (A5)."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.arena import say
from benchmarks.procedures.rows import paired
from benchmarks.regions import hbase
from benchmarks.regions.plan import ROUNDS, Shape, disk, goal, lag, row
from benchmarks.regions.world import TABLE, MeasuredRegions, servers, world
from benchmarks.results import Row
from controller.regions.dispatcher import DispatchLimits
from controller.regions.procedures.messages import TableTask

DELAY_MS: Final = DispatchLimits().delay_ms
"""How long the first operation of a batch waits for others, on both sides."""
US: Final = 1e6


class Played(NamedTuple):
    """Costs of one round: seconds, seconds of CPU of one process, and the loop's longest stall."""

    took_s: float
    cpu_s: float
    lag_ms: float = 0.0


class Times:
    """Measures a change of a world."""

    def __init__(self, found: MeasuredRegions) -> None:
        self._found = found

    async def change(self, kind: str, task: TableTask) -> Played:
        """Makes a change; returns its costs."""
        self._found.lag.take_ms()
        began_s, cpu_s = time.perf_counter(), time.process_time()
        await self._found.change(kind, task)
        return Played(time.perf_counter() - began_s, time.process_time() - cpu_s, self._found.lag.take_ms())


async def assigned(shape: Shape, rounds: int = ROUNDS, *, peer: bool) -> list[Row]:
    """A1 and A5: a table is created with all its regions open, and disabled, each region with its durable steps.

    HBase's assignment manager plays in turn with it; its first round is warm-up.
    """
    opened: list[Played] = []
    closed: list[Played] = []
    theirs: list[Played] = []
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="regions-", dir=disk())))
        beside: hbase.Peer | None = None
        if peer:
            beside = await stack.enter_async_context(
                hbase.running(hbase.ASSIGNING, folder / "peer", shape.servers, DELAY_MS)
            )
            await _peer_round(beside, shape)
        for number in range(rounds):
            (folder / str(number)).mkdir()
            one = await _round(folder / str(number), shape)
            opened.append(one[0])
            closed.append(one[1])
            if beside is not None:
                theirs.append(await _peer_round(beside, shape))
    return [*rows(shape, opened, theirs), *_disable_rows(shape, closed)]


async def _round(folder: Path, shape: Shape) -> tuple[Played, Played]:
    async with world(folder, servers_min=shape.servers) as found, servers(found.port, shape.servers):
        await found.until(shape.servers)
        times = Times(found)
        opened = await times.change("create_table", TableTask(TABLE, uniform=shape.regions))
        closed = await times.change("disable_table", TableTask(TABLE))
    say(f"A1 {shape}: {shape.regions / opened.took_s:,.0f} regions/s, lag {opened.lag_ms:.0f} ms")
    say(f"A5 {shape}: {closed.took_s:.2f} s, lag {closed.lag_ms:.0f} ms")
    return opened, closed


async def _peer_round(beside: hbase.Peer, shape: Shape) -> Played:
    found = await beside.play(shape.regions)
    if found["open"] != shape.regions:
        raise RuntimeError(f"HBase opened {found['open']} of {shape.regions} regions")
    say(f"A1 {shape}: HBase {shape.regions / found['s']:,.0f} regions/s")
    return Played(found["s"], found["cpuS"])


def rows(shape: Shape, ours: list[Played], theirs: list[Played]) -> list[Row]:
    """Returns the rows of A1. ``theirs``: rounds of HBase, empty without it."""
    rate = paired(
        "A1",
        str(shape),
        "regions assigned, ours durable, HBase's manager without its store",
        "per second",
        [shape.regions / one.took_s for one in ours],
        [shape.regions / one.took_s for one in theirs],
        goal=goal("A1", shape),
        peer_is=hbase.NEW.name if theirs else "-",
        higher_is_better=True,
    )
    rate.phases = {
        name: {"us of CPU for a region": _median(played, lambda one: one.cpu_s) / shape.regions * US}
        for name, played in (("regent", ours), (hbase.NEW.name, theirs))
        if played
    }
    return [rate, lag("A1", shape, [one.lag_ms for one in ours])]


def _disable_rows(shape: Shape, closed: list[Played]) -> list[Row]:
    found = row("A5", shape, "table disabled, each close durable", "s", [one.took_s for one in closed])
    found.phases = {"regent": {"us of CPU for a region": _median(closed, lambda one: one.cpu_s) / shape.regions * US}}
    return [found, lag("A5", shape, [one.lag_ms for one in closed])]


def _median(played: list[Played], of: Callable[[Played], float]) -> float:
    return statistics.median(map(of, played))
