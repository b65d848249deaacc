"""Brokers that are drained or shut down by command, or frozen while their replicas move away."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from cli.demo.process import RegentProcess
from cli.exit_codes import Exit
from metadata_store import paths
from metadata_store.nodes.stray_nodes import StrayKey, read_strays
from state_machines.model.types import Assignment
from testing.embedded.load import REQUEST_S_MAX
from testing.znodes import create_topic, read_topic
from tests.kit.cluster.scene import TOPIC as SHUTDOWN_TOPIC
from tests.kit.cluster.scene import Scene, leaders, regent, scene, succeeds
from tests.kit.cluster.world import ClusterWorld, world
from tests.kit.deadlines import eventually

PARTITIONS = 4
TOPIC = "moves"


@pytest_asyncio.fixture
async def governed() -> AsyncIterator[tuple[ClusterWorld, RegentProcess]]:
    """Runs three brokers under a daemon."""
    async with world(3) as w:
        daemon = w.daemon(flags=("--takeover",))
        await daemon.boot()
        yield w, daemon


async def moved(w: ClusterWorld, replicas: tuple[int, ...]) -> bool:
    """Returns whether the topic znode has the target alone."""
    return set((await read_topic(w.zk, TOPIC)).partitions.values()) == {Assignment(replicas)}


async def remembered(w: ClusterWorld) -> set[StrayKey]:
    return set((await read_strays(w.zk)).entries)


async def test_a_frozen_broker_deletes_the_replicas_that_were_moved_away_meanwhile(
    governed: tuple[ClusterWorld, RegentProcess],
) -> None:
    w, daemon = governed
    await create_topic(w.zk, TOPIC, dict.fromkeys(range(PARTITIONS), (3, 1)))
    await w.led(TOPIC, PARTITIONS)
    await w.healed()
    own = {(3, p) for p in range(PARTITIONS)}
    await eventually(lambda: own < w.hosting(TOPIC), 10.0)
    w.cluster.brokers[3].pause()
    try:
        await w.registered(3, expected=False)
        wanted = ",".join(f'{{"topic":"{TOPIC}","partition":{p},"replicas":[1,2]}}' for p in range(PARTITIONS))
        await w.zk.create(paths.REASSIGN_PARTITIONS, f'{{"version":1,"partitions":[{wanted}]}}'.encode())
        await eventually(lambda: moved(w, (1, 2)), 60.0)
        assert await remembered(w) == {StrayKey(3, TOPIC)}
        await daemon.kill()
    finally:
        w.cluster.brokers[3].resume()
    assert own < w.hosting(TOPIC), "nothing names these logs but the memory"
    await w.registered(3)
    await daemon.boot()
    await eventually(lambda: w.hosting(TOPIC) == {(b, p) for b in (1, 2) for p in range(PARTITIONS)}, 30.0)

    async def forgotten() -> bool:
        return not await remembered(w)

    await eventually(forgotten, 10.0)
    await w.healed()


async def test_a_broker_deletes_the_strays_that_an_operator_removes(
    governed: tuple[ClusterWorld, RegentProcess],
) -> None:
    """Broker 1 is restarted with logs of a topic that does not exist, and of a partition that is on other brokers."""
    w, daemon = governed
    await create_topic(w.zk, TOPIC, {0: (2, 3)})
    await w.led(TOPIC, 1)
    broker = w.cluster.brokers[1]
    await broker.stop()
    ghosts = [broker.folder / "data-1" / name for name in ("ghost-0", "ghost-7", f"{TOPIC}-0")]
    for ghost in ghosts:
        ghost.mkdir()
    await broker.boot()
    await w.healed()
    listed = json.loads((await regent(daemon, "strays", "-o", "json"))[1])["items"][0]["strays"]
    assert {(one["topic"], one["partition"]) for one in listed} == {("ghost", 0), ("ghost", 7), (TOPIC, 0)}
    planned = await succeeds(daemon, "strays", "--remove", "--topic", "ghost", "--dry-run")
    assert planned.count("planned") == 2
    assert all(ghost.is_dir() for ghost in ghosts)
    done = json.loads(await succeeds(daemon, "strays", "--remove", "1", "--topic", "ghost", "--yes", "-o", "json"))
    assert [one["outcome"] for one in done["items"][0]["strays"]] == ["removed", "removed"]
    assert [ghost.is_dir() for ghost in ghosts] == [False, False, True]
    await succeeds(daemon, "strays", "--remove", "--yes", "--reason", "a test")
    assert not any(ghost.is_dir() for ghost in ghosts)
    await eventually(lambda: w.hosting(TOPIC) == {(2, 0), (3, 0)}, 10.0)
    assert (await regent(daemon, "strays"))[0] == Exit.DONE
    await w.healed()


PLACES = {0: (1, 2), 1: (2, 3), 2: (2, 1)}


async def placed(w: ClusterWorld) -> dict[int, tuple[int, ...]]:
    """Returns the replicas of topic t by partition."""
    return {number: replicas for (topic, number), (replicas, _) in (await w.states()).items() if topic == "t"}


async def test_a_drain_with_replicas_is_taken_back_after_its_end_by_a_daemon_that_was_restarted() -> None:
    async with world(3, partitions=1, replication=1) as w:
        daemon = w.daemon(flags=("--takeover",))
        await daemon.boot()
        await create_topic(w.zk, "t", PLACES)
        await w.healed()

        async def items(*words: str) -> list[dict[str, Any]]:
            return list(json.loads(await succeeds(daemon, *words, "-o", "json"))["items"])

        foretold = await items("drain", "2", "--replicas", "--dry-run")
        assert {row["entity"] for row in foretold if row["what"] == "replicas"} == {"broker 2", "t-0", "t-1", "t-2"}
        [drain] = await items("drain", "2", "--replicas", "--wait", "--reason", "new disks")
        assert drain["state"] == "success"
        assert all(2 not in replicas for replicas in (await placed(w)).values())
        await daemon.kill()
        await daemon.boot()

        pid = str(drain["pid"])
        back = await items("end", pid, "--undo", "--dry-run")
        assert {one["partition"]: tuple(one["target"]) for one in back} == PLACES
        [plan] = await items("end", pid, "--undo", "--yes", "--reason", "the wrong broker")
        await daemon.kill()
        await daemon.boot()
        await succeeds(daemon, "procedures", "wait", str(plan["pid"]), "--timeout", "60")

        async def is_back() -> bool:
            return await placed(w) == PLACES

        await eventually(is_back, 30)
        [status] = await items("status")
        assert not status.get("drainedBrokers")
        await w.healed()


BROKER = 3
STALL_S_MAX = REQUEST_S_MAX / 3
"""A record whose leader waits for the stopped broker waits until its request times out."""


async def test_a_broker_that_is_shut_down_by_command_may_stop_and_return() -> None:
    async with scene() as stage:
        stage.load.take_stall()
        await succeeds(stage.daemon, "shutdown", str(BROKER), "--accept", "single-replica")
        led = [topic for (topic, _), leader in leaders(await stage.w.states()).items() if leader == BROKER]
        assert SHUTDOWN_TOPIC not in led
        await stage.w.cluster.brokers[BROKER].kill()
        await stage.flows()
        stall = stage.load.take_stall()
        assert stall.seconds < STALL_S_MAX, stall
        await stage.w.cluster.revive(BROKER)
        await stage.proven()


async def undo(stage: Scene) -> None:
    await succeeds(stage.daemon, "undrain", str(BROKER))


async def failover(stage: Scene) -> None:
    await stage.restart_with({})
    await stage.active()


@pytest.mark.parametrize("ending", [undo, failover])
async def test_what_is_kept_out_of_isrs_follows_again(ending: Callable[[Scene], Awaitable[None]]) -> None:
    async with scene() as stage:
        epochs = {
            name: state.leader_epoch
            for name, (_, state) in (await stage.w.states()).items()
            if state is not None and state.leader == BROKER
        }
        assert epochs
        await succeeds(stage.daemon, "shutdown", str(BROKER), "--accept", "single-replica")

        async def kept_out() -> bool:
            states = [(epoch, (await stage.w.states())[name][1]) for name, epoch in epochs.items()]
            return all(s is not None and s.leader_epoch == epoch + 2 and BROKER not in s.isr for epoch, s in states)

        await eventually(kept_out, 30.0)
        await ending(stage)
        await stage.proven()
