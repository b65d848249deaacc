"""A daemon is killed in the middle of each kind of procedure: commands that wait go on, and end with its result.

Two commands wait: the one that began it, beside the daemon that is killed and started again, and another one beside
the standby that takes over.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, NamedTuple

import pytest
import pytest_asyncio

from cli.demo.process import RegentProcess
from cli.exit_codes import Exit
from controller.kafka.procedures import drain, elect, reassign, restart, throttle
from controller.kafka.term.procedures import KINDS
from state_machines.model.types import Assignment
from tests.kit.cluster.scene import regent, succeeds
from tests.kit.deadlines import eventually
from tests.verify.plan_kit import (
    SMALL_FETCHES,
    SOON,
    Spot,
    arrived,
    at_count,
    filled,
    has_arrived,
    kafkas_file,
    nothing_left,
    ran,
    throttled,
    waited,
)
from tests.verify.system import System, system

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOPIC, PARTITIONS = "moved", 12
HOME, AWAY = (1, 2), (3, 4)
SLOW, FAST = "100000", "50000000"
WAITS = ("--wait", "--timeout", "300", "-o", "json")
PATIENT = {"zookeeper.session.timeout.ms": 60_000}
TICK_MS = 3_000
"""Sessions last for at most 20 ticks: a broker that is frozen during a failover stays registered."""
FROZEN = 4
LIVE = ("procedures", "list", "--live")


class Story(NamedTuple):
    """How a procedure of a kind begins, is recognized in its middle, goes on after the failover, and ends."""

    kind: str
    command: Callable[[System], Coroutine[Any, Any, list[str]]]
    in_the_middle: Callable[[System], Coroutine[Any, Any, bool]]
    go_on: Callable[[System], Coroutine[Any, Any, None]]
    code: Exit
    state: str
    result: str
    stays: bool = False
    """The command ends once the procedure is in force; an operator ends the procedure."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[System]:
    """Runs a cluster with two daemons, with all partitions on brokers 1 and 2."""
    properties = {**SOON, **SMALL_FETCHES, **PATIENT}
    async with system("waiting callers", 4, properties=properties, zookeeper_options={"tick_ms": TICK_MS}) as s:
        await filled(s, [TOPIC], PARTITIONS, HOME)
        yield s


@pytest_asyncio.fixture(loop_scope="module")
async def s(shared: System) -> AsyncIterator[System]:
    """Gives the cluster to a test, and brings everything home after it."""
    yield shared
    daemon = await shared.active()
    shared.w.cluster.brokers[FROZEN].resume()
    await succeeds(daemon, "resume")
    for live in await ran(daemon, *LIVE):  # of a test that failed
        await regent(daemon, "procedures", "abort", str(live["pid"]), "--yes")
        await waited(daemon, str(live["pid"]))
    await at_count(lambda: at_rest(shared))
    await succeeds(daemon, "undrain", "1", "2")
    await ran(daemon, "reassign", "apply", *await plan_to(shared, HOME), "--wait")
    await shared.w.healed()
    await shared.tool("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")


async def plan_to(s: System, target: tuple[int, ...]) -> list[str]:
    """Returns the arguments of a plan that moves all partitions."""
    targets: dict[Spot, tuple[int, ...]] = dict.fromkeys([(TOPIC, p) for p in range(PARTITIONS)], target)
    return [str(kafkas_file(s, "plan.json", targets)), "--yes"]


async def slow_plan(s: System) -> list[str]:
    return ["reassign", "apply", *await plan_to(s, AWAY), "--moves-max", "4", "--throttle", SLOW]


async def slow_drain(_: System) -> list[str]:
    return ["drain", "2", "--replicas", "--throttle", "40000"]


async def paused_drain(s: System) -> list[str]:
    """Pauses automatic moves: the drain marks its broker, and begins no wave."""
    await succeeds(await s.active(), "pause")
    return ["drain", "1"]


async def paused_election(s: System) -> list[str]:
    """Has the other replicas lead, and pauses automatic moves: the election begins no wave."""
    await succeeds(await s.active(), "drain", "1", "--wait")
    await succeeds(await s.active(), "undrain", "1")
    await succeeds(await s.active(), "pause")
    return ["elect", "preferred", "--all"]


async def unconfirmed_throttle(s: System) -> list[str]:
    """Freezes a broker: it confirms nothing."""
    s.w.cluster.brokers[FROZEN].pause()
    return ["throttle", "set", "3", str(FROZEN), "--rate", FAST, "--topic", TOPIC]


async def moves_are_under_way(s: System) -> bool:
    """Returns whether a part of the moves has ended, and a part is under way."""
    found = [*(await s.placed(TOPIC)).values()]
    return any(a.moving for a in found) and any(not a.moving and a != Assignment(HOME) for a in found)


async def replicas_move(s: System) -> bool:
    return any(a.moving for a in (await s.placed(TOPIC)).values())


async def broker_is_marked(s: System) -> bool:
    [status] = await ran(await s.active(), "status")
    return bool(status.get("drainedBrokers") == [1])


async def broker_is_queried(s: System) -> bool:
    found = await ran(await s.active(), *LIVE)
    return any(one["step"] == "confirm on brokers" for one in found)


async def election_stands_still(s: System) -> bool:
    found = await ran(await s.active(), *LIVE)
    return [one["kind"] for one in found] == [elect.NAME]


async def thawed(s: System) -> None:
    s.w.cluster.brokers[FROZEN].resume()


async def plan(s: System) -> str:
    """Returns the pid of the plan that runs."""
    [found] = [found for found in await ran(await s.active(), *LIVE) if found["kind"] == reassign.NAME]
    return str(found["pid"])


async def faster(s: System) -> None:
    await ran(await s.active(), "reassign", "resume", await plan(s), "--throttle", FAST)


async def taken_back(s: System) -> None:
    await ran(await s.active(), "reassign", "cancel", await plan(s), "--roll-back", "--yes")


async def resumed(s: System) -> None:
    await succeeds(await s.active(), "resume")


STORIES: Final = {
    "reassign": Story(
        reassign.NAME, slow_plan, moves_are_under_way, faster, Exit.DONE, "success", f"{PARTITIONS} done"
    ),
    "taken back": Story(reassign.NAME, slow_plan, moves_are_under_way, taken_back, Exit.FAILED, "rolledback", ""),
    "drain": Story(
        drain.NAME, paused_drain, broker_is_marked, resumed, Exit.DONE, "success",
        f"{PARTITIONS} of {PARTITIONS} leaders moved",
    ),
    "drain of replicas": Story(
        drain.NAME, slow_drain, replicas_move, faster, Exit.DONE, "success",
        f"0 of 0 leaders moved; {PARTITIONS} of {PARTITIONS} replicas moved",
    ),
    "election": Story(
        elect.NAME, paused_election, election_stands_still, resumed, Exit.DONE, "success",
        f"{PARTITIONS} elected; 0 led by the preferred replica already",
    ),
    "throttle": Story(
        throttle.NAME, unconfirmed_throttle, broker_is_queried, thawed, Exit.DONE, "success",
        f"brokers [3, {FROZEN}] at {FAST} bytes/s; all replicas of topics ['{TOPIC}']; 2 of 2 brokers confirmed it",
        stays=True,
    ),
}  # fmt: skip


def test_each_kind_with_steps_has_a_story() -> None:
    """Recorded calls have none: they have ended when they begin. Restarts have theirs in ``test_kept_restarts.py``."""
    assert {kind.name for kind in KINDS if kind.steps} == {story.kind for story in STORIES.values()} | {restart.NAME}


@pytest.mark.seed("S2-1", "S2-4", "S2-12", "S2-13", "S2-33", "S2-34", "S2-37")
@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
async def test_waiting_commands_return_the_result_although_a_standby_finishes_the_procedure(
    story: Story, s: System
) -> None:
    victim = await s.active()
    [standby] = [daemon for daemon in s.daemons if daemon is not victim]
    beginning = asyncio.create_task(ended(victim, *await story.command(s), *WAITS))
    await at_count(lambda: story.in_the_middle(s))
    [begun] = [found for found in await ran(victim, *LIVE) if "parent" not in found]
    following = asyncio.create_task(waited(standby, str(begun["pid"])))
    await victim.kill()
    with s.times.taken(f"{story.kind}: kill to another active daemon"):
        assert await s.active() is standby
    await victim.boot("standby")
    assert await story.in_the_middle(s), "nothing is over before it is allowed to go on"
    assert not beginning.done()
    assert not following.done()
    await story.go_on(s)
    if story.stays:
        code, found = await beginning
        assert (code, found["pid"], found["step"], found["ended"]) == (Exit.DONE, begun["pid"], "in force", False)
        await succeeds(standby, "throttle", "lift", str(begun["pid"]))
    for code, found in await asyncio.gather(following, *([] if story.stays else [beginning])):
        assert (code, found["pid"], found["kind"]) == (story.code, begun["pid"], story.kind)
        assert (found["state"], found["result"].removesuffix("; it was lifted")) == (story.state, story.result)
    s.times.note(f"{story.kind}: both commands ended", f"{story.state}, exit code {story.code}")
    await nothing_left(s, [TOPIC])


async def ended(daemon: RegentProcess, *command: str) -> tuple[int, dict[str, Any]]:
    """Runs a command that waits to its end; returns its exit code and the procedure."""
    code, out, err = await regent(daemon, *command)
    assert out, (command, code, err)
    return code, json.loads(out)["items"][0]


@pytest.mark.seed("S2-1", "S2-34")
async def test_a_plan_rests_without_a_throttle_while_a_broker_has_the_role_and_goes_on_when_resumed(
    s: System,
) -> None:
    daemon = await s.active()
    [begun] = await ran(daemon, *await slow_plan(s))
    await at_count(lambda: moves_are_under_way(s))
    out = await succeeds(daemon, "handback", "--yes", "--wait")
    holder = await s.w.broker_controls()
    assert f"broker {holder} holds the role" in out
    assert await throttled(s, [TOPIC]) == set()
    [resting] = await ran(daemon, "procedures", "show", str(begun["pid"]))
    assert not resting["ended"]
    await at_count(lambda: at_rest(s))
    here = await arrived(s, [TOPIC], AWAY)
    assert 0 < here < PARTITIONS, "moves under way ended, no further one began"
    await succeeds(daemon, "takeover", "--yes", "--wait")
    active = await s.active()
    await eventually(lambda: status_of(active, begun["pid"]), 30.0)
    assert await arrived(s, [TOPIC], AWAY) == here
    await ran(active, "reassign", "resume", str(begun["pid"]), "--throttle", FAST)
    code, found = await waited(active, str(begun["pid"]))
    assert (code, found["state"], found["result"]) == (Exit.DONE, "success", f"{PARTITIONS} done")
    assert await has_arrived(s, [TOPIC], AWAY, PARTITIONS)
    s.times.note("hand-back in mid-plan", f"{here} of {PARTITIONS} partitions had moved when the plan rested")
    await nothing_left(s, [TOPIC])


async def at_rest(s: System) -> bool:
    return not await replicas_move(s)


async def status_of(daemon: RegentProcess, pid: int) -> bool:
    """Returns whether the daemon has the procedure, and it goes on."""
    [found] = await ran(daemon, "procedures", "show", str(pid))
    return not found["ended"]
