"""Linked lists on the example service: no acknowledged node is lost while servers and daemons die and freeze.

Regions are moved, split, merged, flushed and copied meanwhile. After HBase's IntegrationTestBigLinkedList.
``make verify`` writes 5 million nodes in 20 minutes with servers that report. With servers that answer by znodes of an
ensemble, whose servers are killed, too, it writes half of that in half of the time. A short form of both is
``REGENT_LISTS_NODES=200000 REGENT_LISTS_S=60``.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.verify.region_lists.chaos import Chaos
from tests.verify.region_lists.figures import figures, judged
from tests.verify.region_lists.nodes import TABLE, WAVES, Plan
from tests.verify.region_lists.snapshot import copied, faults, latest
from tests.verify.region_lists.stage import SIDE, SIDE_ROWS, Stage, staged
from tests.verify.region_lists.verification import Verification

NODES = int(os.environ.get("REGENT_LISTS_NODES") or 5_000_000)
SECONDS = float(os.environ.get("REGENT_LISTS_S") or 20 * 60)
WRITERS = 4
LATE = 3
"""A slow machine may take so many times as long, and START_S besides."""
START_S = 1_800


@pytest.mark.timeout(SECONDS * LATE + 2 * START_S)
async def test_no_node_of_a_list_is_lost(tmp_path: Path) -> None:
    await no_node_is_lost(tmp_path, NODES, SECONDS, noded=False)


@pytest.mark.timeout(SECONDS / 2 * LATE + 2 * START_S)
async def test_no_node_of_a_list_is_lost_where_servers_answer_by_znodes(tmp_path: Path) -> None:
    await no_node_is_lost(tmp_path, NODES // 2, SECONDS / 2, noded=True)


async def no_node_is_lost(tmp_path: Path, nodes: int, seconds: float, *, noded: bool) -> None:
    seed = int(os.environ.get("REGENT_SEED") or random.SystemRandom().randrange(10**6))
    print(f"REGENT_SEED={seed} repeats this run's choices; its logs are in {tmp_path}")
    plan = Plan(nodes, nodes / seconds, WRITERS)
    async with staged(tmp_path, noded=noded) as stage:
        with (tmp_path / "chaos.log").open("w", buffering=1) as log:
            chaos = Chaos(stage, seed, lambda line: print(line, file=log))
            began = time.monotonic()
            await stage.start_writers(plan, seed)
            await stage.all_write()
            await written(stage, chaos, seconds * LATE + START_S)
            wrote_s = time.monotonic() - began
            await chaos.expect_ends()
        await recovered(stage)
        verification = Verification(stage.notes(number) for number in range(WRITERS))
        await verification.run(stage.client)
        side = [key async for key, _ in stage.client.scan(SIDE)]
        cut = await latest(stage, chaos.snapshots)
        if cut is not None:
            await copied(stage, cut)
            print(f"snapshot {cut.name} of {(cut.ended_us - chaos.began_us) / 1e6:.1f} s of chaos.log is compared")
            assert (wrong := await faults(stage.client, cut, map(stage.notes, range(WRITERS)))) == [], wrong[:20]
        journal = judged(stage)
        print("\n".join(figures(stage, chaos, verification, journal, wrote_s)))
        if noded:
            assert await stage.znodes() == ([], True), "each answer was taken, and servers gave some"
        assert not verification.faults, "\n".join([str(dict(verification.faults)), *verification.shown])
        assert verification.nodes == plan.writers * plan.lists * WAVES * plan.width
        assert len(side) == SIDE_ROWS
        assert journal.rows
        assert not journal.violations, "\n".join(journal.violations[:20])


async def written(stage: Stage, chaos: Chaos, within_s: float) -> None:
    """Plays chaos until all writers have ended."""
    faults = asyncio.create_task(chaos.run())
    writers = asyncio.gather(*(writer.ended(within_s) for writer in stage.writers))
    try:
        ends: list[asyncio.Future[Any]] = [faults, writers]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if faults.done():
            faults.result()
        assert all(writers.result()), f"writers have not ended within {within_s:.0f} s"
        for writer in stage.writers:
            assert writer.exit_code == 0, writer.log_tail()
    finally:
        faults.cancel()
        await asyncio.gather(faults, return_exceptions=True)


async def recovered(stage: Stage) -> None:
    """Kills everything once more, so that only what is durable is read, and waits until all regions are open."""
    await stage.kill_all()
    await stage.start_zookeepers()
    await stage.daemon.boot()
    await stage.start_servers()
    await stage.enable(SIDE)
    await stage.all_open(TABLE, SIDE)
    await stage.all_discarded()
