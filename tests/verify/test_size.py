"""Clusters at the limits of ZooKeeper, also with small buffers and with slow, mute and absent brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest import mock

import pytest

from metadata_store import paths
from metadata_store.codecs.cluster import encode_broker
from metadata_store.codecs.topic import encode_topic
from metadata_store.port import ANY_VERSION
from state_machines.model.types import Assignment, Broker, Endpoint, Leadership
from testing.embedded.process import free_port
from testing.znodes import expand_topic, expansion, read_topic
from tests.kit.deadlines import eventually
from tests.verify.size_kit import ENOUGH_S, PROPAGATION_S_MAX, Stage, large, shaped

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


SMALL_BYTES = 128 * 1024
"""``jute.maxbuffer`` of a server with a small limit; the daemon's batches have 512 KiB."""
SPARE_BYTES = 100
"""Of a create request beside the data; a fenced rewrite with a topic id needs more."""
NAMES = "a-service.some-team.orders-by-region-{:06d}.v1"
SLOW, MUTE, ABSENT, DYING, LEAVING = 1, 2, 9, 7, 8
HINDERED = frozenset({SLOW, MUTE, ABSENT})
OTHERS = 3, 4, 5, 6
FOR_EVER_MS = 200_000.0


async def test_batches_are_cut_to_the_buffer_of_the_server(tmp_path: Path) -> None:
    data = shaped(6_000, 1, 6, names=NAMES)
    assert sum(map(len, data.topics)) > 2 * SMALL_BYTES
    with mock.patch("benchmarks.znodes.OPS_PER_MULTI", 200):
        async with large(data, tmp_path, jute_maxbuffer=SMALL_BYTES) as stage:
            await stage.begin_term()
            await stage.settled(6_000)
            assert stage.zookeeper.log_has("Len error"), "larger requests were tried"
            assert stage.daemon.log_has("batches are cut at .* their jute.maxbuffer is too small: raise it to 1048575")
            await stage.fleet.agree()
            epochs = stage.daemon.log_text().count("took office")

            await stage.fleet.die([3])
            await stage.status_with(brokers=5)
            await stage.settled(6_000)
            await stage.fleet.agree()
            assert stage.daemon.log_text().count("took office") == epochs, "what was learned holds"
            await near_the_limit(stage, 6_000)


async def near_the_limit(stage: Stage, partitions: int) -> None:
    """Starts a topic znode that just fits, and one without room for a topic id, which stays as it is."""
    for name, topic_id in (("fits", b"f" * 16), ("has-no-room", None)):
        count = most_partitions(topic_id)
        data = encode_topic({n: Assignment((1, 2)) for n in range(count)}, topic_id)
        await stage.zk.create(paths.topic(name), data)
        partitions += count
        await stage.led(name, range(count))
        await stage.settled(partitions)
    await stage.fleet.agree()
    assert stage.daemon.log_has("topic has-no-room could not be repaired: check its ACL.*jute.maxbuffer")
    assert (await read_topic(stage.zk, "has-no-room")).topic_id is None
    assert not stage.daemon.log_has("topic fits could not be repaired")


def most_partitions(topic_id: bytes | None) -> int:
    """Returns the partitions of the largest topic znode that a client can write here."""
    count = SMALL_BYTES // 12
    while len(encode_topic({n: Assignment((1, 2)) for n in range(count)}, topic_id)) > SMALL_BYTES - SPARE_BYTES:
        count -= 1
    return count


async def test_slow_mute_and_absent_brokers_delay_no_other_broker(tmp_path: Path) -> None:
    """Other brokers have acknowledged everything before the hindered ones receive anything."""
    data = shaped(200, 50, 8)
    settings = {"brokers.request_timeout_ms": 5_000}
    async with large(data, tmp_path, settings=settings, brokers=["--exact"]) as stage:
        await stage.zk.create(paths.broker(ABSENT), absent(), ephemeral=True)
        await stage.fleet.ask("slow", brokers=[SLOW], ms=FOR_EVER_MS)
        await stage.fleet.ask("mute", brokers=[MUTE])
        await stage.begin_term()
        await others_have_acknowledged(stage, *OTHERS, DYING, LEAVING)

        await stage.fleet.die([DYING])
        await others_have_acknowledged(stage, *OTHERS, LEAVING)

        left = await stage.fleet.ask("shutdown", broker=LEAVING)
        assert (left["error_code"], left["remaining"]) == (0, 0), "answered although new leaders took nothing"
        await stage.fleet.die([LEAVING])
        await others_have_acknowledged(stage, *OTHERS)

        await stage.create("new", *[(3, SLOW, MUTE), (SLOW, 4, 5), (MUTE, ABSENT, 6)] * 100)
        await stage.led("new", range(300))
        await others_have_acknowledged(stage, *OTHERS)
        for _ in range(5):
            for broker in OTHERS:
                await stage.fleet.ask("bounce", brokers=[broker])
                await stage.fleet.ask("catch_up", brokers=list(OTHERS))
        await others_have_acknowledged(stage, *OTHERS)
        waiting = await stage.daemon.metric("regent_broker_unacknowledged_partitions")
        assert max(waiting.values()) <= 2 * (200 * 50 + 300), "in the snapshot, and as changed since"

        await stage.zk.delete(paths.broker(ABSENT), ANY_VERSION)
        await stage.fleet.ask("slow", brokers=[SLOW], ms=0)
        await stage.fleet.ask("mute", brokers=[MUTE], on=False)
        await stage.status_with(brokers=6, unacknowledged_partitions=0, event_queue_size=0)
        await stage.fleet.agree()


async def others_have_acknowledged(stage: Stage, *brokers: int) -> None:
    """Waits until ``brokers`` have acknowledged everything, while changes still wait for the hindered ones."""
    hindered = {str(broker) for broker in HINDERED}

    async def waited_for() -> set[str]:
        found = await stage.daemon.metric("regent_broker_unacknowledged_partitions")
        return {labels.split('"')[1] for labels, count in found.items() if count}

    async def acknowledged() -> bool:
        waiting = await waited_for()
        assert waiting == hindered, waiting
        assert not (await stage.status_with())["eventQueueSize"]
        return True

    await eventually(acknowledged, PROPAGATION_S_MAX)
    await stage.fleet.agree(*brokers)
    assert hindered <= await waited_for(), "changes still wait for them when the others have acknowledged"


def absent() -> bytes:
    """Returns the registration of a broker at a port without a listener."""
    return encode_broker(Broker(ABSENT, 0, (Endpoint("INTERNAL", "127.0.0.1", free_port()),)), timestamp_ms=0)
