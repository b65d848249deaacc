"""Real brokers delete the replicas that were moved away while they were frozen, however often the daemon dies."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from cli.demo.process import RegentProcess
from metadata_store import paths
from metadata_store.nodes.stray_nodes import StrayKey, read_strays
from state_machines.model.types import Assignment
from testing.znodes import create_topic, read_topic
from tests.cluster.world import World, world
from tests.polling import eventually

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
