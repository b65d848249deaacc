"""Measures a report on all regions (RP1): its time, and the longest stall of the daemon's loop meanwhile."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.arena import say
from benchmarks.regions.cases import stored
from benchmarks.regions.plan import ROUNDS, Shape, disk, lag, row
from benchmarks.regions.world import MeasuredRegions, world
from benchmarks.results import Row
from controller.regions.operator.report import ReportView
from state_machines.regions.findings import Scope
from state_machines.regions.states import RegionState

LEASE_MS: Final = 600_000
"""Lease of the servers, which are rows alone: none of them counts as crashed meanwhile."""


async def reported(shape: Shape, rounds: int = ROUNDS) -> list[Row]:
    """RP1: a report where all regions are open, and one where none is: then each region is a finding."""
    made: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="regions-", dir=disk()) as name:
        folder = Path(name)
        await stored(folder / "regions.db", shape)
        async with world(folder, lease_ms=LEASE_MS) as found:
            for findings in (0, shape.regions):
                if findings:
                    _give_up_all(found)
                made += await _rows(found, f"{shape}, {findings:,} findings", findings, rounds)
    return made


async def _rows(found: MeasuredRegions, size: str, findings: int, rounds: int) -> list[Row]:
    times_s, lags_ms = list[float](), list[float]()
    for _ in range(rounds):
        await found.lag.settle()
        began_s = time.perf_counter()
        report = await ReportView(found.domain).report(Scope())
        times_s.append(time.perf_counter() - began_s)
        lags_ms.append(found.lag.take_ms())
        if report.total != findings:
            raise RuntimeError(f"{report.total} findings, expected {findings}: {report.counts}")
        say(f"RP1 {size}: {times_s[-1]:.2f} s, lag {lags_ms[-1]:.0f} ms")
    return [row("RP1", size, "report on all regions", "s", times_s), lag("RP1", size, lags_ms)]


def _give_up_all(found: MeasuredRegions) -> None:
    """Has no region open, as if no server could open one."""
    model = found.term.env.model
    for region in model.regions.values():
        region.server = None
        model.restate(region, RegionState.FAILED_OPEN)
    for server in model.servers.values():
        server.regions.clear()
