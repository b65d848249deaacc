"""Reassign plans of 50 partitions on real brokers: killed daemons, a frozen broker, other clients, roll-backs.

Each ends with every record read, and with nothing left behind: no throttle in ZooKeeper, no stray folder on a disk.
"""

from __future__ import annotations

import json

import pytest

from metadata_store.port import ConnectionState
from state_machines.model.types import Assignment
from tests.kit.deadlines import eventually
from tests.verify.plan_kit import (
    SMALL_FETCHES,
    SOON,
    Spot,
    arrived,
    assignments,
    at_count,
    begins_nothing,
    filled,
    has_arrived,
    is_throttled,
    kafkas_file,
    killed,
    moves,
    nothing_left,
    ran,
    throttled,
    waited,
)
from tests.verify.system import System, system

TOPICS = ("one", "two")
PARTITIONS = 25
ALL = len(TOPICS) * PARTITIONS
ORIGIN, TARGET = (1, 2), (3, 4)
KILLS = 5
RATE, FAST, SLOW = "250000", "20000000", "20000"
"""Bytes per second: a plan outlasts its disturbances, ends soon, or outlasts other tools while copies catch up."""
PROPERTIES = {**SOON, **SMALL_FETCHES}
FROZEN = 2


async def made(s: System) -> list[str]:
    """Creates 50 partitions on brokers 1 and 2; returns the command of a plan that moves them to 3 and 4."""
    await filled(s, TOPICS, PARTITIONS, ORIGIN)
    file = kafkas_file(s, "plan.json", {(topic, p): TARGET for topic in TOPICS for p in range(PARTITIONS)})
    return ["reassign", "apply", str(file), "--moves-max", "4", "--throttle", RATE, "--yes"]


async def applied(s: System, plan: list[str]) -> str:
    """Begins the plan and waits until its throttle is everywhere; returns its pid."""
    [begun] = await ran(await s.active(), *plan)
    await eventually(lambda: is_throttled(s, TOPICS), 60.0)
    return str(begun["pid"])


async def faster(s: System, pid: str) -> None:
    """Lets the plan end soon."""
    await ran(await s.active(), "reassign", "resume", pid, "--throttle", FAST)


@pytest.mark.seed("S2-1", "S2-4", "S2-12", "S2-13", "S2-37")
async def test_a_plan_goes_on_through_kills_a_zookeeper_restart_a_bounced_and_a_frozen_broker_and_a_pause(
    request: pytest.FixtureRequest,
) -> None:
    async with system(request.node.name, brokers=4, properties=PROPERTIES) as s:
        plan = [*await made(s), "--nonce", "n"]
        async with s.loaded(dict.fromkeys(TOPICS, PARTITIONS)) as stage:
            pid = await applied(s, plan)
            with s.times.taken(f"plan of {ALL} partitions with {KILLS} kills"):
                for kill in range(1, KILLS + 1):
                    await at_count(lambda kill=kill: has_arrived(s, TOPICS, TARGET, kill * ALL // 12))  # type: ignore[misc]
                    s.times.note(f"kill {kill}", f"{await arrived(s, TOPICS, TARGET)} of {ALL} partitions had moved")
                    await killed(s)
                    await disturbed(s, pid, kill)
                [again] = await ran(await s.active(), *plan)
                assert str(again["pid"]) == pid, "the nonce finds the plan that runs"
                await faster(s, pid)
                code, ended = await waited(await s.active(), pid)
            assert (code, ended["state"], ended["result"]) == (0, "success", f"{ALL} done")
            assert await arrived(s, TOPICS, TARGET) == ALL
            assert await throttled(s, TOPICS) == set(), f"broker {FROZEN} is still away"
            s.w.cluster.brokers[FROZEN].resume()
            await s.w.registered(FROZEN)
            await nothing_left(s, TOPICS)
            await s.proven(stage)


async def disturbed(s: System, pid: str, kill: int) -> None:
    """Does something else to the cluster after each kill; broker 2 freezes before the last one, to the plan's end."""
    if kill == 1:
        await s.w.cluster.zookeeper.restart()
        await eventually(lambda: s.w.zk.state is ConnectionState.CONNECTED, 60.0)
    elif kill == 2:
        await s.w.cluster.brokers[3].restart()
    elif kill == 3:
        await ran(await s.active(), "reassign", "pause", pid)
        await eventually(lambda: begins_nothing(s, pid), 60.0)
        await ran(await s.active(), "reassign", "resume", pid)
    elif kill == 4:
        frozen_at = await arrived(s, TOPICS, TARGET)
        s.w.cluster.brokers[FROZEN].pause()
        await s.w.registered(FROZEN, expected=False)
        s.times.note(f"broker {FROZEN} is frozen", f"it hosts {ALL - frozen_at} replicas that the plan removes")


@pytest.mark.seed("S2-1", "S2-37")
async def test_a_plan_that_is_rolled_back_half_way_gives_every_replica_set_back_except_those_of_other_clients(
    request: pytest.FixtureRequest,
) -> None:
    async with system(request.node.name, brokers=4, properties=PROPERTIES) as s:
        plan = await made(s)
        async with s.loaded(dict.fromkeys(TOPICS, PARTITIONS)) as stage:
            pid = await applied(s, plan)
            await stock_tool(s, "--execute", {("two", 24): (1, 3)})
            await at_count(lambda: has_arrived(s, TOPICS, TARGET, 20))
            await ran(await s.active(), "reassign", "cancel", pid, "--roll-back", "--yes")
            s.times.note("cancelled", f"{await arrived(s, TOPICS, TARGET)} of {ALL} partitions had moved")
            await killed(s)
            with s.times.taken("roll-back, with a kill"):
                code, ended = await waited(await s.active(), pid)
            assert (code, ended["state"], ended["error"]) == (1, "rolledback", "aborted")
            assert (await moves(s, pid))["two", 24]["why"] == "another client reassigned the partition to [1, 3]"
            found = await assignments(s, TOPICS)
            assert found.pop(("two", 24)) == Assignment((1, 3))
            assert [*found.values()] == [Assignment(ORIGIN)] * (ALL - 1)
            await nothing_left(s, TOPICS)
            await s.proven(stage)


async def stock_tool(s: System, action: str, targets: dict[Spot, tuple[int, ...]]) -> None:
    """Reassigns partitions, or cancels their moves, by kafka-reassign-partitions."""
    file = kafkas_file(s, "foreign.json", targets)
    options = ["--additional"] if action == "--execute" else []
    await s.tool("kafka-reassign-partitions", "--reassignment-json-file", str(file), action, *options)


async def test_what_the_stock_tool_reassigns_or_cancels_is_superseded_and_never_touched_again(
    request: pytest.FixtureRequest,
) -> None:
    """The tool's cancellation also removes the plan's rates: they stand again once its lists change."""
    async with system(request.node.name, brokers=4, properties=PROPERTIES) as s:
        plan = await made(s)
        async with s.loaded(dict.fromkeys(TOPICS, PARTITIONS)) as stage:
            pid = await applied(s, plan)
            await at_count(lambda: has_arrived(s, TOPICS, TARGET, 5))
            await ran(await s.active(), "reassign", "resume", pid, "--throttle", SLOW)
            before = await of_status(s, pid, "begun")
            older, latest = await eventually(lambda: begun_since(s, pid, before), 180.0)
            queued = await of_status(s, pid, "queued")
            foreign: dict[Spot, tuple[int, ...]] = {older: (2, 3), queued[-1]: (2, 4), queued[-2]: (2, 1)}
            await stock_tool(s, "--execute", foreign)
            await stock_tool(s, "--cancel", {latest: TARGET})
            foreign[latest] = ORIGIN
            await killed(s)
            await eventually(lambda: is_throttled(s, TOPICS), 60.0)
            await faster(s, pid)
            code, ended = await waited(await s.active(), pid)
            assert (code, ended["state"]) == (3, "success")
            assert ended["result"] == f"{ALL - len(foreign)} done, {len(foreign)} superseded"
            s.times.note("ended", ended["result"])
            reasons = {spot: move["why"] for spot, move in (await moves(s, pid)).items() if move["why"]}
            assert reasons.keys() == foreign.keys()
            s.times.note("superseded", json.dumps({f"{t}-{p}": why for (t, p), why in sorted(reasons.items())}))
            wanted = {(topic, p): TARGET for topic in TOPICS for p in range(PARTITIONS)} | foreign
            await eventually(lambda: are_placed(s, wanted), 60.0)
            await nothing_left(s, TOPICS)
            await s.proven(stage)


async def of_status(s: System, pid: str, status: str) -> list[Spot]:
    return [spot for spot, move in (await moves(s, pid)).items() if move["status"] == status]


async def begun_since(s: System, pid: str, before: list[Spot]) -> list[Spot]:
    """Returns the two latest moves, which began with the present rate: others may end before a tool has started."""
    found = [spot for spot in await of_status(s, pid, "begun") if spot not in before]
    assert len(found) >= 2, found
    return found[-2:]


async def are_placed(s: System, wanted: dict[Spot, tuple[int, ...]]) -> bool:
    assert await assignments(s, TOPICS) == {spot: Assignment(replicas) for spot, replicas in wanted.items()}
    return True
