"""Moves under acks=all load by a slow throttle: all partitions of a topic at once, by a plan, or by Kafka's tool."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tests.kit.cluster.scene import Scene
from tests.verify.plan_kit import SMALL_FETCHES, SOON, filled, kafkas_file, moved_by_tool, ran, throttled, waited
from tests.verify.system import System, system

TOPIC: Final = "orders"
PARTITIONS: Final = 26
ORIGIN, TARGET = (1, 2), (3, 4)
MB: Final = 0.4
RATE_BYTES_PER_S: Final = 300_000
RECORDS_PER_S: Final = 300
REGENT, TOOL = "regent", "kafka-reassign-partitions"


@asynccontextmanager
async def moving(name: str, by: str) -> AsyncIterator[tuple[System, Scene]]:
    """Moves all partitions while records are written and read; the block begins once the moves have ended."""
    async with system(name, brokers=4, properties={**SOON, **SMALL_FETCHES}) as s:
        await filled(s, [TOPIC], PARTITIONS, ORIGIN, MB)
        async with s.loaded({TOPIC: PARTITIONS}, RECORDS_PER_S) as stage:
            with s.times.taken(f"{PARTITIONS} moves at {RATE_BYTES_PER_S} bytes/s"):
                await (_by_plan(s) if by == REGENT else _by_tool(s))
            s.times.note("longest wait during the moves", round(stage.load.stall().seconds, 2))
            yield s, stage


def _targets() -> dict[tuple[str, int], tuple[int, ...]]:
    return {(TOPIC, p): TARGET for p in range(PARTITIONS)}


async def _by_plan(s: System) -> None:
    """Moves all partitions by a plan, at once as the tool begins them; nothing is throttled at its end."""
    file = kafkas_file(s, "plan.json", _targets())
    caps = ("--moves-max", str(PARTITIONS), "--broker-moves-max", str(PARTITIONS), "--throttle", str(RATE_BYTES_PER_S))
    [begun] = await ran(await s.active(), "reassign", "apply", str(file), *caps, "--yes")
    code, ended = await waited(await s.active(), str(begun["pid"]))
    assert (code, ended["state"]) == (0, "success")
    assert await throttled(s, [TOPIC]) == set()


async def _by_tool(s: System) -> None:
    await moved_by_tool(s, kafkas_file(s, "plan.json", _targets()), "--throttle", str(RATE_BYTES_PER_S))
