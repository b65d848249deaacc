"""Plans with a throttle under acks=all load: the longest wait of a record, and a rate that follows the ISR."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.kit.deadlines import eventually
from tests.verify.plan_kit import SMALL_FETCHES, SOON, arrived, filled, kafkas_file, nothing_left, ran, waited
from tests.verify.system import System, system
from tests.verify.throttled_moves import PARTITIONS, REGENT, TARGET, TOOL, TOPIC, moving

LOW, HIGH = 20_000, 160_000
PACED_PARTITIONS: Final = 4
PACED_MB: Final = 4.0
LIVES_WHILE_FROZEN: Final = {"zookeeper.session.timeout.ms": 120_000, "replica.lag.time.max.ms": 5_000}


@pytest.mark.parametrize("by", [REGENT, TOOL])
async def test_records_are_acknowledged_while_a_throttled_plan_copies(by: str, request: pytest.FixtureRequest) -> None:
    async with moving(request.node.name, by) as (s, stage):
        assert await arrived(s, [TOPIC], TARGET) == PARTITIONS
        let_go = "for they have nearly caught up" in (await s.active()).log_text()
        assert let_go is (by == REGENT), "brokers send sizes, and lists follow them"
        await nothing_left(s, [TOPIC])
        await s.proven(stage)


async def test_a_rate_between_bounds_rises_is_halved_while_a_replica_lags_and_outlives_the_daemon(
    request: pytest.FixtureRequest,
) -> None:
    """A frozen broker keeps its session: its replicas fall out of the ISR, as they do where copies take too much."""
    properties = {**SOON, **SMALL_FETCHES, **LIVES_WHILE_FROZEN}
    long = {"session_ms_max": 240_000}
    async with system(request.node.name, brokers=4, properties=properties, zookeeper_options=long) as s:
        await filled(s, ["paced"], PACED_PARTITIONS, (1,), PACED_MB)
        await s.create("beside", dict.fromkeys(range(2), (1, 2)), min_insync_replicas=1)
        file = kafkas_file(s, "paced.json", {("paced", p): (3, 4) for p in range(PACED_PARTITIONS)})
        rate = ("--throttle", f"{LOW}..{HIGH}")
        [begun] = await ran(await s.active(), "reassign", "apply", str(file), *rate, "--yes")
        assert (await throttle(s))["rateBytesPerS"] == LOW
        with s.times.taken("from the lower bound to the upper one"):
            await eventually(lambda: has_rate(s, HIGH, HIGH), 120.0)
        s.w.cluster.brokers[2].pause()
        try:
            await s.fill("beside", range(2), 0.1)  # a follower that has all records never lags
            await eventually(lambda: has_rate(s, LOW, HIGH // 2), 60.0)
            found = await throttle(s)
            assert found["rateWhy"].startswith("halved: "), found
            assert "on broker 2" in found["rateWhy"]
            await (await s.active()).kill()
            after = await eventually(lambda: throttle_of_next(s), 60.0)
            assert after["rateBytesPerS"] <= HIGH // 2, after
        finally:
            s.w.cluster.brokers[2].resume()
        await ran(await s.active(), "reassign", "set", str(begun["pid"]), "--throttle", "0")
        code, ended = await waited(await s.active(), str(begun["pid"]))
        assert (code, ended["state"]) == (0, "success")


async def throttle(s: System) -> dict[str, Any]:
    """Returns the throttle of the plan."""
    found = await ran(await s.active(), "throttle", "show")
    return dict(next((one for one in found if one["kind"] == "reassign"), {}))


async def throttle_of_next(s: System) -> dict[str, Any]:
    """Returns the throttle as the next daemon has it; empty before it is active."""
    return await throttle(s) if any([await one.is_in("active") for one in s.daemons if one.running]) else {}


async def has_rate(s: System, least: int, most: int) -> bool:
    """Returns whether the plan has a rate between these."""
    return least <= int((await throttle(s))["rateBytesPerS"]) <= most
