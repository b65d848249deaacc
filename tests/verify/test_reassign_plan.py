"""Reassign plans on real brokers: killed daemons, other clients, roll-backs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.demo.process import RegentProcess
from metadata_store import paths
from metadata_store.port import ConnectionState
from state_machines.admin_rules.throttles import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from state_machines.model.types import Assignment
from tests.cluster.scene import regent
from tests.polling import eventually
from tests.verify.system import System, system

TOPICS = ("one", "two")
PARTITIONS = 25
KILLS = 5
RATE = 20_000_000
OPTIONS = ("--moves-max", "4", "--throttle", str(RATE), "--yes", "--nonce", "n")
SETTINGS = {LEADER_RATE, FOLLOWER_RATE, LEADER_REPLICAS, FOLLOWER_REPLICAS}


async def made(s: System) -> Path:
    """Creates 50 partitions on brokers 1 and 2; returns the file of a plan that moves them to 3 and 4."""
    for topic in TOPICS:
        await s.create(topic, dict.fromkeys(range(PARTITIONS), (1, 2)))
        await s.fill(topic, range(PARTITIONS), 0.5)
    partitions = [
        {"topic": topic, "partition": number, "replicas": [3, 4]} for topic in TOPICS for number in range(PARTITIONS)
    ]
    file = s.w.cluster.folder / "plan.json"
    file.write_text(json.dumps({"version": 1, "partitions": partitions}), encoding="utf-8")
    return file


async def ran(daemon: RegentProcess, *arguments: str) -> Any:
    """Runs a command of regent that must succeed; returns the items of its JSON."""
    code, out, err = await regent(daemon, *arguments, "-o", "json")
    assert code == 0, (arguments, out, err)
    return json.loads(out)["items"]


async def placed(s: System) -> set[Assignment]:
    """Reads the distinct assignments of all partitions."""
    return {assignment for topic in TOPICS for assignment in (await s.placed(topic)).values()}


async def moved(s: System) -> int:
    """Counts the partitions that are on their target."""
    found = [assignment for topic in TOPICS for assignment in (await s.placed(topic)).values()]
    return found.count(Assignment((3, 4)))


async def test_a_plan_goes_on_through_killed_daemons_a_zookeeper_restart_a_bounced_broker_and_a_pause(
    request: pytest.FixtureRequest,
) -> None:
    async with system(request.node.name, brokers=4) as s:
        plan = await made(s)
        async with s.loaded(dict.fromkeys(TOPICS, PARTITIONS)) as stage:
            active = await s.active()
            [begun] = await ran(active, "reassign", "apply", str(plan), *OPTIONS)
            pid = str(begun["pid"])
            await eventually(lambda: is_throttled(s), 30.0)
            with s.times.taken("plan of 50 partitions with 5 kills"):
                for kill in range(1, KILLS + 1):
                    await eventually(lambda kill=kill: reached(s, kill * 50 // (KILLS + 2)), 120.0)  # type: ignore[misc]
                    active = await s.active()
                    await active.kill()
                    await active.boot(None)
                    await disturbed(s, pid, kill)
                await s.active()
                [again] = await ran(await s.active(), "reassign", "apply", str(plan), *OPTIONS)
                assert again["pid"] == begun["pid"], "the nonce finds the plan that runs"
                [ended] = await ran(await s.active(), "procedures", "wait", pid, "--timeout", "300")
            assert (ended["state"], ended["result"]) == ("success", "50 done")
            assert await placed(s) == {Assignment((3, 4))}
            assert await throttled(s) == set()
            await eventually(lambda: stray_free(s), 60.0)
            await s.proven(stage)


async def disturbed(s: System, pid: str, kill: int) -> None:
    """Restarts ZooKeeper, bounces a destination, or pauses and resumes the plan, each after another kill."""
    if kill == 1:
        await s.w.cluster.zookeeper.restart()
        await eventually(lambda: s.w.zk.state is ConnectionState.CONNECTED, 60.0)
    elif kill == 2:
        await s.w.cluster.brokers[3].restart()
    elif kill == 3:
        await ran(await s.active(), "reassign", "pause", pid)
        await eventually(lambda: begins_nothing(s, pid), 60.0)
        await ran(await s.active(), "reassign", "resume", pid)


async def begins_nothing(s: System, pid: str) -> bool:
    """Returns whether no move of the plan is under way, while some are queued."""
    found = {move["status"] for move in await ran(await s.active(), "reassign", "show", pid)}
    return "queued" in found and "begun" not in found


async def throttled(s: System) -> set[str]:
    """Reads the entities whose configuration has a setting of a throttle."""
    entities = [("brokers", str(broker)) for broker in s.w.cluster.brokers] + [("topics", topic) for topic in TOPICS]
    found: set[str] = set()
    for kind, name in entities:
        node = await s.w.zk.get(paths.config(kind, name))
        if node is not None and SETTINGS & json.loads(node.data or b"{}").get("config", {}).keys():
            found.add(f"{kind} {name}")
    return found


async def reached(s: System, count: int) -> bool:
    """Returns whether so many partitions have moved."""
    return await moved(s) >= count


async def is_throttled(s: System) -> bool:
    """Returns whether brokers and topics have the plan's throttle."""
    return len(await throttled(s)) == len(s.w.cluster.brokers) + len(TOPICS)


async def stray_free(s: System) -> bool:
    """Returns whether no broker keeps a log of what was moved away."""
    hosting = set[int]()
    for topic in TOPICS:
        hosting |= {broker for broker, _ in s.w.hosting(topic)}
    return hosting == {3, 4}


async def test_a_plan_that_is_rolled_back_half_way_gives_every_replica_set_back_except_those_of_other_clients(
    request: pytest.FixtureRequest,
) -> None:
    async with system(request.node.name, brokers=4) as s:
        plan = await made(s)
        async with s.loaded(dict.fromkeys(TOPICS, PARTITIONS)) as stage:
            active = await s.active()
            [begun] = await ran(
                active, "reassign", "apply", str(plan), "--moves-max", "4", "--throttle", str(RATE), "--yes"
            )
            pid = str(begun["pid"])
            foreign = {"version": 1, "partitions": [{"topic": "two", "partition": 24, "replicas": [1, 3]}]}
            file = s.w.cluster.folder / "foreign.json"
            file.write_text(json.dumps(foreign), encoding="utf-8")
            await s.tool(
                "kafka-reassign-partitions", "--reassignment-json-file", str(file), "--execute", "--additional"
            )
            await eventually(lambda: reached(s, 20), 120.0)
            await ran(active, "reassign", "cancel", pid, "--roll-back", "--yes")
            code, out, err = await regent(active, "procedures", "wait", pid, "--timeout", "300", "-o", "json")
            assert code == 1, (out, err)
            [ended] = json.loads(out)["items"]
            assert (ended["state"], ended["error"]) == ("rolledback", "aborted")
            moves = {(m["topic"], m["partition"]): m for m in await ran(active, "reassign", "show", pid)}
            assert moves["two", 24]["why"] == "another client reassigned the partition"
            found = {(t, p): a for t in TOPICS for p, a in (await s.placed(t)).items()}
            assert found.pop(("two", 24)) == Assignment((1, 3))
            assert set(found.values()) == {Assignment((1, 2))}
            assert await throttled(s) == set()
            await s.proven(stage)
