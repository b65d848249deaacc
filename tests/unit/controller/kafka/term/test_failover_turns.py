"""A failover keeps the event loop for a bounded number of partitions, of whatever size and order topics are."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any
from unittest import mock

from controller.kafka.term.failover import GROWTH_MAX
from metadata_store import reads
from metadata_store.codecs.topic import TopicDecoder
from state_machines.model.cluster import Cluster
from state_machines.model.types import Leadership, TopicAssignment
from testing.memory import MemoryZooKeeper
from tests.kit.controller_world import World, in_world
from tests.kit.virtual_time import VirtualTimeLoop

TURN_ROWS = 50
TURN_BYTES = 2_000
LARGEST = 130
SMALL, LARGE = 10, 30


@contextmanager
def counted() -> Iterator[dict[str, Counter[int]]]:
    """Counts partitions that are observed, loaded and decoded by turn of the loop."""
    found: dict[str, Counter[int]] = {"observed": Counter(), "loaded": Counter(), "decoded": Counter()}
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    observe, load, decode = Cluster.observe_topic, Cluster.load_leadership, TopicDecoder.decode

    def observed(cluster: Cluster, topic: TopicAssignment) -> list[int]:
        found["observed"][loop.turns] += len(topic.partitions)
        return observe(cluster, topic)

    def loaded(cluster: Cluster, rows: Iterable[int], states: Iterable[Leadership | None]) -> None:
        known = list(rows)
        found["loaded"][loop.turns] += len(known)
        load(cluster, known, states)

    def decoded(decoder: TopicDecoder, path: str, name: str, data: bytes | None, *more: int) -> Any:
        found["decoded"][loop.turns] += len(data or b"")
        return decode(decoder, path, name, data, *more)

    with (
        mock.patch("controller.kafka.term.failover.TURN_ROWS", TURN_ROWS),
        mock.patch.object(reads, "TURN_BYTES", TURN_BYTES),
        mock.patch.object(Cluster, "observe_topic", observed),
        mock.patch.object(Cluster, "load_leadership", loaded),
        mock.patch.object(TopicDecoder, "decode", decoded),
    ):
        yield found


async def skewed(w: World) -> int:
    """Creates small topics, then large ones, then one beyond a turn, in the order of names; returns partitions."""
    for number in range(SMALL):
        await w.topic(f"a-{number:02d}", (1, 2, 3), leaders=True)
    for number in range(LARGE):
        await w.topic(f"b-{number:02d}", *[(1, 2, 3)] * 20, leaders=True)
    await w.topic("c", *[(2, 3, 1)] * LARGEST, leaders=True)
    return SMALL + LARGE * 20 + LARGEST


@in_world()
async def test_a_turn_of_the_loop_has_a_bounded_number_of_partitions(w: World) -> None:
    partitions = await skewed(w)
    with counted() as found:
        await w.begin_term()
    assert sum(found["observed"].values()) == sum(found["loaded"].values()) == partitions
    assert max(found["loaded"].values()) <= TURN_ROWS
    *rest, most = sorted(found["observed"].values())
    assert most == LARGEST, "a topic enters whole"
    assert max(rest) <= TURN_ROWS
    largest_znode = len(w.node("/brokers/topics/c").data or b"")  # type: ignore[union-attr]
    assert max(found["decoded"].values()) <= TURN_BYTES + largest_znode
    assert len(w.term.cluster.rows) == partitions
    w.agreed()


@in_world()
async def test_reads_grow_by_a_bounded_factor_after_small_topics(w: World) -> None:
    reads_of: list[int] = []
    read_many = MemoryZooKeeper.read_many

    async def counted_read(zk: MemoryZooKeeper, paths: list[str], **options: int) -> Any:
        reads_of.append(sum(path.count("/") == 3 and path.startswith("/brokers/topics/") for path in paths))
        return await read_many(zk, paths, **options)

    await skewed(w)
    with (
        mock.patch("controller.kafka.term.failover.TURN_ROWS", 1_000),
        mock.patch("controller.kafka.term.failover.FIRST_TOPICS", 1),
        mock.patch.object(MemoryZooKeeper, "read_many", counted_read),
    ):
        await w.begin_term()
    counts = [count for count in reads_of if count]
    assert (counts[0], sum(counts)) == (1, SMALL + LARGE + 1)
    assert all(later <= GROWTH_MAX * max(earlier, 1) for earlier, later in pairwise(counts))
