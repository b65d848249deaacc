"""Measures splits of many regions (SP1): how long clients wait for an owner, and how many splits end in a second."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.arena import say
from benchmarks.regions import hbase, real
from benchmarks.regions.assigning import DELAY_MS
from benchmarks.regions.plan import ROUNDS, Shape, disk, lag, row
from benchmarks.regions.world import TABLE, MeasuredRegions, module, world
from benchmarks.results import Row, Sample
from controller.regions.dispatcher import DispatchLimits
from controller.regions.procedures import split
from state_machines.procedures.record import Caller
from state_machines.procedures.states import State
from state_machines.regions.entities import Region

SHAPE: Final = Shape(1_000, 20)
TOGETHER: Final = 50
"""Splits under way at a time."""
CLIENTS: Final = 20
DELAYS_MS: Final = (0, DELAY_MS)
PEER_WARM_UP: Final = 10
PEER_REGIONS: Final = 100
"""Regions that HBase splits, all at once: each has a client that reads a row of it."""


class Split(NamedTuple):
    """Costs of a round: splits per second, waits of clients in seconds, and the loop's longest stall."""

    rate: float
    waits_s: Sequence[float]
    lag_ms: float = 0.0

    @property
    def p99_s(self) -> float:
        """Returns the wait that one of a hundred exceeds."""
        return sorted(self.waits_s)[len(self.waits_s) * 99 // 100]


async def split_under_load(shape: Shape = SHAPE, rounds: int = ROUNDS, *, peer: bool) -> list[Row]:
    """SP1: all regions of a table are split while clients follow their routes; with two delays of the dispatcher."""
    found: list[Row] = []
    for delay_ms in DELAYS_MS:
        ours = [await _round(shape, delay_ms) for _ in range(rounds)]
        found += rows(f"{delay_ms} ms delay, {shape}", ours, await _theirs() if peer and delay_ms == DELAY_MS else None)
    return found


def rows(size: str, ours: Sequence[Split], theirs: Split | None) -> list[Row]:
    """Returns the rows of one delay."""
    wait = row("SP1", size, "99 of 100 waits of a client, at most", "s", [one.p99_s for one in ours])
    rate = row("SP1 rate", size, "rate", "splits per second", [one.rate for one in ours], higher=True)
    if theirs is not None:
        wait.peer, rate.peer = Sample.of([theirs.p99_s]), Sample.of([theirs.rate])
        wait.peer_is = rate.peer_is = f"{hbase.NEW.name}, {PEER_REGIONS} regions on {real.SHAPE.servers}"
    return [wait, rate, lag("SP1", size, [one.lag_ms for one in ours])]


async def _theirs() -> Split:
    with tempfile.TemporaryDirectory(prefix="regions-", dir=disk()) as name:
        program = hbase.cluster_of(hbase.NEW)
        async with hbase.running(program, Path(name), real.SHAPE.servers, DELAY_MS, "false") as cluster:
            await cluster.play(PEER_WARM_UP, "split")
            found = await cluster.play(PEER_REGIONS, "split")
    played = Split(PEER_REGIONS / found["s"], found["waits"])
    say(f"SP1 {hbase.NEW.name}, {PEER_REGIONS} regions: {played.rate:,.1f}/s, p99 {played.p99_s:.3f} s")
    return played


async def _round(shape: Shape, delay_ms: int) -> Split:
    limits = DispatchLimits(delay_ms=delay_ms)
    with tempfile.TemporaryDirectory(prefix="regions-", dir=disk()) as folder:
        async with (
            world(Path(folder), servers_min=shape.servers, limits=limits) as found,
            module("split_clients", found.port, shape.servers, CLIENTS) as clients,
        ):
            await found.until(shape.servers)
            await found.create(shape.regions)
            await clients.said()
            parents = list(found.term.env.model.tables[TABLE].regions)
            await found.lag.settle()
            began_s = time.perf_counter()
            await _split(found, parents)
            rate = len(parents) / (time.perf_counter() - began_s)
            lag_ms = found.lag.take_ms()
            clients.tell(2 * len(parents))
            played = Split(rate, json.loads(await clients.said()), lag_ms)
    say(f"SP1 {shape}, delay {delay_ms} ms: {rate:,.0f}/s, p99 {played.p99_s:.3f} s, lag {lag_ms:.0f} ms")
    return played


async def _split(found: MeasuredRegions, parents: Sequence[Region]) -> None:
    places = asyncio.Semaphore(TOGETHER)

    async def one(parent: Region) -> None:
        async with places:
            data = await split.splitting(found.term.env, parent, parent.start + b"0", "benchmark")
            engine = found.term.engine
            record = await engine.result(await engine.submit(split.NAME, data, Caller("benchmark")))
            if record.state is not State.SUCCESS:
                raise RuntimeError(f"{parent} was not split: {record}")

    await asyncio.gather(*map(one, parents))
