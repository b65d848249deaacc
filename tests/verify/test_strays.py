"""Real brokers delete the replicas that were moved away while they were frozen, however often the daemon dies."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest_asyncio

from cli.demo.process import RegentProcess
from cli.exit_codes import Exit
from metadata_store import paths
from metadata_store.nodes.stray_nodes import StrayKey, read_strays
from state_machines.model.types import Assignment
from testing.znodes import create_topic, read_topic
from tests.kit.polling import eventually
from tests.real.cluster.scene import regent, succeeds
from tests.real.cluster.world import World, world

PARTITIONS = 4
TOPIC = "moves"


@pytest_asyncio.fixture
async def governed() -> AsyncIterator[tuple[World, RegentProcess]]:
    """Runs three brokers under a daemon."""
    async with world(3) as w:
        daemon = w.daemon(flags=("--takeover",))
        await daemon.boot()
        yield w, daemon


async def moved(w: World, replicas: tuple[int, ...]) -> bool:
    """Returns whether the topic znode has the target alone."""
    return set((await read_topic(w.zk, TOPIC)).partitions.values()) == {Assignment(replicas)}


async def remembered(w: World) -> set[StrayKey]:
    return set((await read_strays(w.zk)).entries)


async def test_a_frozen_broker_deletes_the_replicas_that_were_moved_away_meanwhile(
    governed: tuple[World, RegentProcess],
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


async def test_a_broker_deletes_the_strays_that_an_operator_removes(governed: tuple[World, RegentProcess]) -> None:
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
