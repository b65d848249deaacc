"""Nothing of what is over stays in memory: bounces, terms, topics, and what a broker that does not listen must hear.

``tests/verify/test_leaks_at_length.py`` has the large numbers.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import tracemalloc
from unittest import mock

import pytest

from brokers.outbound.channels import Channels
from controller.operator.counts import Counted, Counts
from state_machines.model.cluster import Cluster
from state_machines.model.types import Leadership
from state_machines.propagation.view import Feed
from tests.kit.deadlines import in_exact_time
from tests.kit.kafka.leaks import PARTITIONS, Bouncing, Terms, Topics, flat, growth, life, short_windows
from tests.kit.kafka.model import P, make_cluster

pytestmark = pytest.mark.timeout(600)  # ten seconds of work each: a busy machine takes long


@in_exact_time
async def test_bounces_leave_nothing_in_memory() -> None:
    with short_windows():
        async with life(1, 2, 3, 4) as w:
            await w.topic("t", *PARTITIONS, leaders=True)
            await w.calm()
            left = await growth(Bouncing(w), 200, 500)
            assert flat(left, 500), left
            assert w.daemon.counters.terms == 1
            assert {name: set(isr) for name, (_, isr) in w.leaders().items()} == {
                ("t", number): set(replicas) for number, replicas in enumerate(PARTITIONS)
            }


@in_exact_time
async def test_one_small_object_for_each_bounce_would_be_seen() -> None:
    leak: list[object] = []

    class Leaky(Channels):
        def remove(self, broker_id: int) -> None:
            leak.append(object())
            super().remove(broker_id)

    with short_windows():
        async with life(1, 2, 3, 4) as w:
            await w.topic("t", *PARTITIONS, leaders=True)
            await w.calm()
            bouncing = Bouncing(w)
            await growth(bouncing, 200, 1)
            w.term.channels.__class__ = Leaky
            left = await growth(bouncing, 0, 250)
            assert len(leak) == 250
            assert not flat(left, 250), left


@in_exact_time
async def test_terms_leave_nothing_in_memory() -> None:
    with short_windows():
        async with life(1, 2, 3, 4) as w:
            await w.topic("t", *PARTITIONS, leaders=True)
            await w.calm()
            left = await growth(Terms(w), 60, 300)
            assert w.daemon.counters.terms == 361
            assert flat(left, 300), left
            assert len(w.daemon.counters.resignations) == 2, "reasons are few, whatever the epoch"


@in_exact_time
async def test_a_vanished_partition_leaves_a_row_until_the_term_ends() -> None:
    with short_windows(), mock.patch("brokers.outbound.batches.KEPT_MAX", 8):
        async with life(1, 2, 3, 4) as w:
            topics = Topics(w)
            tracemalloc.start()
            try:
                await growth(topics, 50, 1)
                before = tracemalloc.get_traced_memory()[0]
                await growth(topics, 0, 100)
                per_partition = (tracemalloc.get_traced_memory()[0] - before) / 300
            finally:
                tracemalloc.stop()
            assert w.term.cluster.ended == len(w.term.cluster.rows) == 453
            assert per_partition < 400, "a row, its index, and its share of the topic's name and id"


@in_exact_time
async def test_topics_that_vanished_leave_nothing_in_memory_once_the_term_was_renewed() -> None:
    """A row index is not used twice in a term: so a term ends when most of what it carries along is of the past."""
    with short_windows(), mock.patch("controller.kafka.topics.topic_change.ENDED_ROWS_MAX", 299):
        async with life(1, 2, 3, 4) as w:
            await w.topic("t", *PARTITIONS, leaders=True)
            await w.calm()
            left = await growth(Topics(w), 100, 500)
            assert (w.daemon.counters.terms, w.daemon.counters.resignations["renewed"]) == (7, 6)
            assert len(w.term.cluster.rows) == len(PARTITIONS)
            assert flat(left, 500), left
            assert set(w.leaders()) == {("t", p) for p in range(len(PARTITIONS))}


@in_exact_time
async def test_changes_for_a_silent_broker_are_bounded_by_the_number_of_partitions() -> None:
    with short_windows():
        async with life(1, 2, 3, 4) as w:
            await w.topic("t", *(PARTITIONS * 5), leaders=True)
            await w.calm()
            w.wires.silent.add(4)
            others = itertools.cycle((1, 2, 3))

            async def bounce() -> None:
                await w.bounce(next(others))
                await w.calm()
                await w.in_sync()

            left = await growth(bounce, 300, 600)
            assert flat(left, 600), left
            waiting = w.metric("regent_broker_unacknowledged_partitions")
            assert waiting == {"1": 0, "2": 0, "3": 0, "4": 20}
            ages = w.metric("regent_broker_propagation_age_seconds")
            assert ages["4"] > 0 == ages["1"] == ages["2"] == ages["3"]
            w.wires.silent.clear()
            await w.term.channels.quiesced(120.0)
            assert set(w.metric("regent_broker_unacknowledged_partitions").values()) == {0}


def test_a_row_that_stays_unread_does_not_keep_the_memory_of_its_page() -> None:
    feed = Feed()
    for cold in range(200):
        feed.changed([1_000 + cold])
        for _ in range(40):
            feed.changed(range(50))
    pages = feed._pages.values()
    assert feed.backlog(0) == len(feed) == sum(map(len, pages)) == 250
    assert sum(map(sys.getsizeof, pages)) < 250 * 400
    feed.forget(feed.number)
    assert len(feed) == feed.backlog(0) == 0
    assert len(feed._pages) <= 1


def test_isrs_that_no_partition_has_any_more_are_forgotten() -> None:
    cluster = make_cluster(P((1, 2, 3), 1), P((2, 3, 1), 2), brokers=(1, 2, 3))
    with mock.patch("state_machines.model.assigned.ISRS_SPARE", 10):
        for number in range(1_000):
            cluster.observe_leadership(0, Leadership(1, 5, (1, 2, 10 + number), 7, 100 + number))
            cluster.observe_brokers(cluster.brokers)
            assert len(cluster._isrs) <= 15
    assert cluster.rows[1].isr is cluster.intern_isr((2, 3, 1)), "what rows have stays one object"


async def test_only_partitions_that_changed_are_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large model is looked at twice a second: counting all of it each time would take half a processor."""
    cluster = make_cluster(*[P((1, 2, 3), 1)] * 100, brokers=(1, 2, 3))
    monkeypatch.setattr("controller.operator.counts.TURN_ROWS", 10)
    monkeypatch.setattr("controller.operator.counts.REST_TIMES", 0)
    counted, looked_at = Counted(), 0
    really = Counts.count

    def count(counts: Counts, rows: list[object], least: object) -> None:
        nonlocal looked_at
        looked_at += len(rows)
        really(counts, rows, least)  # type: ignore[arg-type]

    monkeypatch.setattr(Counts, "count", count)
    for change, expected in ((None, 100), (None, 0), (37, 10), (None, 0)):
        looked_at = 0
        if change is not None:
            cluster.observe_leadership(change, Leadership(2, 9, (2, 3), 7, 50))
        await counted.refresh(cluster)
        assert looked_at == expected
    found = counted.of(cluster)
    assert found is not None
    assert (found.leads, found.under_replicated, found.not_preferred) == ({1: 99, 2: 1}, 1, 1)


async def test_counting_leaves_the_processor_to_others_most_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = make_cluster(*[P((1, 2, 3), 1)] * 100, brokers=(1, 2, 3))
    monkeypatch.setattr("controller.operator.counts.TURN_ROWS", 10)
    monkeypatch.setattr("controller.operator.counts.REST_TIMES", 1e9)
    counted = Counted()
    await counted.refresh(cluster)
    first = counted.of(cluster)
    await asyncio.sleep(0.001)
    await counted.refresh(cluster)
    assert counted.of(cluster) is first, "it rests"
    other = Cluster(9)
    other.rows = list(cluster.rows)
    await counted.refresh(other)
    assert counted.of(other) is not None, "another term's model is counted at once"
