"""Plans with a slow throttle under acks=all load: the longest wait of a record, beside Kafka's tool for the same."""

from __future__ import annotations

from typing import Final

import pytest

from tests.polling import eventually
from tests.verify.plan_kit import (
    SMALL_FETCHES,
    SOON,
    arrived,
    filled,
    kafkas_file,
    nothing_left,
    ran,
    throttled,
    waited,
)
from tests.verify.system import System, system

TOPIC: Final = "orders"
PARTITIONS: Final = 26
ORIGIN, TARGET = (1, 2), (3, 4)
MB: Final = 0.4
RATE_BYTES_PER_S: Final = 300_000
RECORDS_PER_S: Final = 300
MOVES_MAX: Final = 26
"""All moves at once, as the tool begins them."""


@pytest.mark.parametrize("by", ["regent", "kafka-reassign-partitions"])
async def test_records_are_acknowledged_while_a_throttled_plan_copies(by: str, request: pytest.FixtureRequest) -> None:
    async with system(request.node.name, brokers=4, properties={**SOON, **SMALL_FETCHES}) as s:
        await filled(s, [TOPIC], PARTITIONS, ORIGIN, MB)
        async with s.loaded({TOPIC: PARTITIONS}, RECORDS_PER_S) as stage:
            with s.times.taken(f"{PARTITIONS} moves at {RATE_BYTES_PER_S} bytes/s"):
                await (moved_by_plan(s) if by == "regent" else moved_by_tool(s))
            s.times.note("longest wait during the moves", round(stage.load.stall().seconds, 2))
            assert await arrived(s, [TOPIC], TARGET) == PARTITIONS
            await nothing_left(s, [TOPIC])
            await s.proven(stage)


def targets() -> dict[tuple[str, int], tuple[int, ...]]:
    return {(TOPIC, p): TARGET for p in range(PARTITIONS)}


async def moved_by_plan(s: System) -> None:
    """Moves all partitions by a plan; nothing is throttled at its end."""
    file = kafkas_file(s, "plan.json", targets())
    caps = ("--moves-max", str(MOVES_MAX), "--broker-moves-max", str(MOVES_MAX), "--throttle", str(RATE_BYTES_PER_S))
    [begun] = await ran(await s.active(), "reassign", "apply", str(file), *caps, "--yes")
    code, ended = await waited(await s.active(), str(begun["pid"]))
    assert (code, ended["state"]) == (0, "success")
    assert await throttled(s, [TOPIC]) == set()


async def moved_by_tool(s: System) -> None:
    """Moves all partitions by Kafka's tool; its throttle goes once the moves are verified."""
    file = str(kafkas_file(s, "plan.json", targets()))
    await s.tool(
        "kafka-reassign-partitions", "--execute", "--reassignment-json-file", file, "--throttle", str(RATE_BYTES_PER_S)
    )

    async def verified() -> bool:
        done = await s.tool("kafka-reassign-partitions", "--verify", "--reassignment-json-file", file)
        return "still in progress" not in done.out

    await eventually(verified, 280.0)
