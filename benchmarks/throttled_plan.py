"""Measures W: the longest wait of an acks=all record while a throttled plan moves replicas, beside Kafka's tool.

Both move the same partitions of four real brokers at the same rate, all at once, under the same load.
"""

from __future__ import annotations

from typing import Final

from benchmarks.arena import say
from benchmarks.results import Goal, Row, Sample
from tests.verify.throttled_moves import PARTITIONS, RATE_BYTES_PER_S, RECORDS_PER_S, REGENT, TOOL, moving

SIZE: Final = f"{PARTITIONS} moves at {RATE_BYTES_PER_S // 1_000} kB/s"
GOAL: Final = Goal(ratio=10, most=1.0)


async def waits(rounds: int) -> Row:
    """Returns the row of both; each round has its own cluster."""
    found = {by: [await _longest(by, number) for number in range(rounds)] for by in (REGENT, TOOL)}
    what = f"longest wait of a record during a throttled plan, {RECORDS_PER_S} records/s with acks=all"
    ours, theirs = Sample.of(found[REGENT]), Sample.of(found[TOOL])
    return Row("W", SIZE, what, "s", ours, theirs, GOAL, peer_is=TOOL)


async def _longest(by: str, number: int) -> float:
    async with moving(f"W {by} {number + 1}", by) as (_, stage):
        seconds = stage.load.stall().seconds
    say(f"{by}, {number + 1}: {seconds:.2f} s")
    return seconds
