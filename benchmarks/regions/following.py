"""Measures what clients cost that follow routes while all regions of a table are assigned (AF)."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.arena import say
from benchmarks.regions.plan import ROUNDS, disk, lag, row
from benchmarks.regions.world import TABLE, MeasuredRegions, followers, servers, world
from benchmarks.results import Row, Sample
from controller.regions.procedures.messages import TableTask

FOLLOWED: Final = 5_000
FOLLOWED_SERVERS: Final = 20
FOLLOWERS: Final = (0, 500, 2_000)
QUIET_S: Final = 1.0
"""Time in which connections of followers come to rest."""


class Followed(NamedTuple):
    """Costs of the assignment of all regions."""

    cpu_s: float
    lag_ms: float
    told_s: float


async def followed(rounds: int = ROUNDS) -> list[Row]:
    """AF: all regions of a table are assigned while clients follow their routes, and without clients."""
    with tempfile.TemporaryDirectory(prefix="regions-", dir=disk()) as folder:
        async with world(Path(folder), servers_min=FOLLOWED_SERVERS) as found, servers(found.port, FOLLOWED_SERVERS):
            await found.until(FOLLOWED_SERVERS)
            await found.create(FOLLOWED)
            measured = {count: [await _enabled(found, count) for _ in range(rounds)] for count in FOLLOWERS}
    alone_s = Sample.of([one.cpu_s for one in measured[0]]).median
    rows: list[Row] = []
    for count in FOLLOWERS[1:]:
        size = f"{FOLLOWED:,}, {count:,} followers"
        parts = [one.cpu_s / alone_s for one in measured[count]]
        cost = row("AF", size, "CPU of the daemon, over that without followers", "times", parts)
        cost.phases["regent"] = {
            "ms of CPU without followers": alone_s * 1_000,
            "ms until all followers have all routes": Sample.of([one.told_s for one in measured[count]]).median * 1_000,
        }
        rows += [cost, lag("AF", size, [one.lag_ms for one in measured[count]])]
    return rows


async def _enabled(found: MeasuredRegions, count: int) -> Followed:
    """Disables the table and enables it; with followers until the last of them has the last change."""
    await found.change("disable_table", TableTask(TABLE))
    async with followers(found.port, count) as clients:
        await clients.said()
        await asyncio.sleep(QUIET_S)
        found.lag.take_ms()
        began_s, cpu_s = time.perf_counter(), time.process_time()
        await found.change("enable_table", TableTask(TABLE))
        if count:
            clients.tell(found.term.env.routes.change)
            responses = int(await clients.said())
            say(f"AF {count:,} followers: {responses / count:.1f} responses for each")
        spent = Followed(time.process_time() - cpu_s, found.lag.take_ms(), time.perf_counter() - began_s)
    say(f"AF {count:,} followers: {spent.cpu_s:.2f} s of CPU, lag {spent.lag_ms:.0f} ms, told in {spent.told_s:.2f} s")
    return spent
