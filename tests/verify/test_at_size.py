"""Clusters at the limits of ZooKeeper: many topics, a huge topic, and storms of ISR changes.

Everybody's view is compared with ZooKeeper at the end of each step.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from state_machines.model.types import Leadership
from testing.znodes import expand_topic, expansion, read_topic
from tests.verify.size_kit import ENOUGH_S, Stage, large, shaped

JAVA_CLIENT_BYTES_MAX = 1_048_575
"""Answers above this are refused by ZooKeeper's Java client as shipped (``jute.maxbuffer``)."""
TOPICS, EXPANDED = 30_000, 2_000
HUGE = 10_000
STORM_BROKERS = 12
EXACT = ("--exact",)
"""Brokers that keep the ISRs they were granted."""
KINDS_MAX = 8
"""Kinds of level-triggered events, each of which waits once at the most."""


async def test_a_listing_of_thirty_thousand_topics_is_read(tmp_path: Path) -> None:
    data = shaped(TOPICS, 1, 6, names="a-service.some-team.orders-by-region-{:06d}.v1")
    assert sum(4 + len(name) for name in data.topics) > JAVA_CLIENT_BYTES_MAX, "more than other clients take"
    async with large(data, tmp_path) as stage:
        await stage.begin_term()
        await stage.settled(TOPICS)
        await stage.fleet.agree()
        assert stage.daemon.log_has("children of /brokers/topics take .* with KAFKA_OPTS=-Djute.maxbuffer=4194304")

        await stage.create("a-service.some-team.orders-by-region-015000.v2", (1, 2, 3))
        await stage.settled(TOPICS + 1)

        topics = [await read_topic(stage.zk, name) for name in data.topics[:: TOPICS // EXPANDED]]
        for start in range(0, EXPANDED, 500):
            await stage.zk.apply([expansion(topic, (2, 3, 4)) for topic in topics[start : start + 500]])
        await stage.settled(TOPICS + 1 + EXPANDED)

        await stage.fleet.die([3])
        await stage.status_with(brokers=5)
        await stage.settled(TOPICS + 1 + EXPANDED)
        await stage.fleet.agree()
        print(f"peak {stage.peak_mb:.0f} MB, longest loop lag {await stage.longest_lag_s():.3f} s")


async def test_a_topic_with_ten_thousand_partitions_is_started_expanded_and_moved(tmp_path: Path) -> None:
    replicas = [tuple((p + k) % 6 + 1 for k in range(3)) for p in range(2 * HUGE)]
    async with large(shaped(4, 50, 6), tmp_path, brokers=EXACT) as stage:
        await stage.begin_term()
        await stage.settled(200)
        await stage.create("huge", *replicas[:HUGE])
        await stage.settled(200 + HUGE)
        await stage.fleet.agree()

        await expand_topic(stage.zk, "huge", *replicas[HUGE:])
        await stage.settled(200 + 2 * HUGE)
        states = await stage.states("huge", range(2 * HUGE))
        assert [(s.leader, s.isr) for s in states if s] == [(r[0], r) for r in replicas], "Kafka's first assignment"
        await stage.fleet.agree()

        await stage.fleet.die([3])
        await stage.status_with(brokers=5)
        await stage.settled(200 + 2 * HUGE)
        assert not any(3 in s.isr for s in await stage.states("huge", range(2 * HUGE)) if s)
        await stage.fleet.agree()

        left = await stage.fleet.ask("shutdown", broker=5)
        assert (left["error_code"], left["remaining"]) == (0, 0)
        assert 5 not in await leaders(stage, 2 * HUGE)
        await stage.fleet.die([5])
        await stage.status_with(brokers=4)
        await stage.settled(200 + 2 * HUGE)
        await stage.fleet.agree()

        await stage.daemon.kill()
        await stage.daemon.boot("active", ENOUGH_S)
        await stage.settled(200 + 2 * HUGE)
        await stage.fleet.register([3, 5])
        await stage.status_with(brokers=6)
        await all_in_sync(stage)
        await stage.settled(200 + 2 * HUGE)
        await stage.fleet.agree()
        assert not stage.zookeeper.log_has("Len error")
        print(f"peak {stage.peak_mb:.0f} MB, longest loop lag {await stage.longest_lag_s():.3f} s")


@pytest.mark.parametrize(
    ("topics", "ibp"), [(2_000, "3.9-IV0"), (40, "2.7-IV1")], ids=["100000 partitions", "2000 by notification"]
)
async def test_events_stay_coalesced_while_all_brokers_bounce_one_after_the_other(
    tmp_path: Path, topics: int, ibp: str
) -> None:
    """While the daemon handles one bounce, leaders request ISR changes and the next broker restarts."""
    partitions = topics * 50
    data = shaped(topics, 50, STORM_BROKERS)
    settings, arguments = {"controller.ibp": ibp}, ["--ibp", ibp, *EXACT]
    async with large(data, tmp_path, settings=settings, heap_mb=1_024, brokers=arguments) as stage:
        await stage.begin_term()
        await stage.settled(partitions)
        async with watched(stage) as depths:
            for broker in data.brokers:
                await stage.fleet.ask("bounce", brokers=[broker])
                await stage.fleet.ask("catch_up")
            await all_in_sync(stage)
        await stage.settled(partitions)
        await stage.fleet.agree()
        assert max(depths) <= STORM_BROKERS + KINDS_MAX, "a call of each broker, and one event of each kind"
        assert await stage.daemon.metric("regent_terms_total") == {"": 1}
        states = [s for name in data.topics[:20] for s in await stage.states(name, range(50))]
        expected = [set(replicas) for replicas in data.replicas[: 20 * 50]]
        assert [set(s.isr) for s in states if isinstance(s, Leadership)] == expected
        print(
            f"{len(depths)} looks, {max(depths):.0f} events waited at most; peak {stage.peak_mb:.0f} MB, "
            f"longest loop lag {await stage.longest_lag_s():.3f} s"
        )


async def leaders(stage: Stage, partitions: int) -> set[int]:
    """Returns the brokers that lead partitions of the huge topic."""
    return {state.leader for state in await stage.states("huge", range(partitions)) if state}


async def all_in_sync(stage: Stage) -> None:
    """Makes leaders request ISR changes until every replica is in sync."""
    async with asyncio.timeout(ENOUGH_S):
        while True:
            await stage.fleet.ask("catch_up")
            if not (await stage.status_with())["underReplicatedPartitions"]:
                return


@asynccontextmanager
async def watched(stage: Stage) -> AsyncIterator[list[float]]:
    """Samples the length of the event queue."""
    depths: list[float] = []

    async def look() -> None:
        while True:
            depths.append((await stage.daemon.metric("regent_event_queue_size"))[""])
            await asyncio.sleep(0.1)

    looking = asyncio.create_task(look())
    try:
        yield depths
    finally:
        looking.cancel()
        await asyncio.wait([looking])
        if not looking.cancelled():
            looking.result()
