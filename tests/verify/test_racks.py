"""Nine brokers on three racks under load: restarted rack by rack, then one of them is drained, removed and replaced."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from cli.exit_codes import Exit
from state_machines.model.types import Assignment
from tests.kit.cluster.scene import regent, succeeds
from tests.verify.min_isr_watch import min_isr_watch
from tests.verify.plan_kit import SOON, Spot, assignments, nothing_left, ran
from tests.verify.system import System, system

RACKS = {"a": (1, 2, 3), "b": (4, 5, 6), "c": (7, 8, 9)}
RACK_OF = {broker: rack for rack, brokers in RACKS.items() for broker in brokers}
MIN_ISR = 2
PARTITIONS = 18
PATIENT = {"zookeeper.session.timeout.ms": 18_000, "replica.lag.time.max.ms": 30_000}
"""Nine brokers share a few cores: one that waits for a core is not taken for dead, nor for one that is behind."""
HEAP_MB = 200
RATE = "20000000"
OLD, NEW = 1, 10


def across(partition: int, replicas: int) -> tuple[int, ...]:
    """Returns replicas of as many racks, each rack and each of its brokers first in turn."""
    racks = [*RACKS.values()]
    return tuple(racks[(partition + n) % len(racks)][partition // len(racks) % 3] for n in range(replicas))


async def test_a_restart_by_rack_and_a_replaced_broker_leave_every_partition_its_min_isr(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """``orders`` needs two of its three replicas, ``notes`` one of two."""
    async with system(
        request.node.name, 9, racks=[*RACK_OF.values()], heap_mb=HEAP_MB, properties={**SOON, **PATIENT}
    ) as s:
        topics = {"orders": PARTITIONS, "notes": PARTITIONS}
        await s.create("orders", {p: across(p, 3) for p in range(PARTITIONS)})
        await s.create("notes", {p: across(p, 2) for p in range(PARTITIONS)}, min_insync_replicas=1)
        for topic in topics:
            await s.fill(topic, range(PARTITIONS), 0.5)
        async with s.loaded(topics) as stage, min_isr_watch(s.w.cluster.connect, MIN_ISR) as watch:
            with s.times.taken("restart of nine brokers by rack"):
                await restarted(s, tmp_path / "restart.json")
            await s.proven(stage)
            with s.times.taken(f"drain and removal of broker {OLD}"):
                await removed(s)
            with s.times.taken(f"broker {NEW} takes its share"):
                await added(s, tmp_path / "plan.json", list(topics))
            await nothing_left(s, list(topics))
            await s.proven(stage)
        s.times.note("min.insync.replicas", str(watch))
        assert watch.below == []
        assert watch.readings > watch.writes > 0


async def restarted(s: System, since: Path) -> None:
    """Restarts all brokers as the script of the documentation does."""
    call = ("restart-next", "--since", str(since), "--wait", "--timeout", "300")
    batches: list[list[int]] = []
    while batch := [int(broker) for broker in (await succeeds(await s.active(), *call)).split()]:
        batches.append(batch)
        assert len({RACK_OF[broker] for broker in batch}) == 1, batches
        stopped = await asyncio.gather(*(s.w.cluster.brokers[broker].shut_down() for broker in batch))
        assert all(one.succeeded for one in stopped), stopped
        await asyncio.gather(*(s.w.cluster.brokers[broker].boot() for broker in batch))
        assert len(batches) <= len(RACK_OF), batches
    assert sorted(broker for batch in batches for broker in batch) == sorted(RACK_OF), "each was restarted once"
    s.times.note("batches", json.dumps(batches))
    assert len(batches) == len(RACKS), "a rack may stop as a whole"


async def removed(s: System) -> None:
    """Drains a broker, and stops it for good once it may be removed."""
    daemon = await s.active()
    code, out, err = await regent(daemon, "can-remove", str(OLD))
    assert code == Exit.REFUSED, (out, err)
    [drained] = await ran(daemon, "drain", str(OLD), "--replicas", "--throttle", RATE, "--wait", "--reason", "replaced")
    assert drained["state"] == "success"
    s.times.note("drain", drained["result"])
    await succeeds(daemon, "can-remove", str(OLD))
    assert (await s.w.cluster.brokers[OLD].shut_down()).first_try
    await succeeds(daemon, "can-remove", str(OLD))
    del s.w.cluster.brokers[OLD]
    await succeeds(daemon, "undrain", str(OLD))


async def added(s: System, plan: Path, topics: list[str]) -> None:
    """Starts a new broker in the rack of the old one, and gives it its share of the replicas by a plan."""
    await s.w.cluster.add_broker(NEW, rack=RACK_OF[OLD]).boot()
    await s.w.registered(NEW)
    daemon = await s.active()
    await succeeds(daemon, "reassign", "plan", "--add", str(NEW), "--out", str(plan))
    [ended] = await ran(daemon, "reassign", "apply", str(plan), "--throttle", RATE, "--yes", "--wait")
    assert ended["state"] == "success"
    s.times.note("plan", ended["result"])
    placed = await assignments(s, topics)
    share = sum(len(found.replicas) for found in placed.values()) // len(s.w.cluster.brokers)
    assert len(hosted(placed, NEW)) >= share, placed
    rack_of = {**RACK_OF, NEW: RACK_OF[OLD]}
    assert all(len({rack_of[b] for b in found.replicas}) == len(found.replicas) for found in placed.values())


def hosted(placed: dict[Spot, Assignment], broker: int) -> list[Spot]:
    return [spot for spot, found in placed.items() if broker in found.replicas]
