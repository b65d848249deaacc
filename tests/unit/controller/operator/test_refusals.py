"""Partitions that brokers refuse are state: from the response on, until the broker accepts, or one of both is gone."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from brokers.outbound.delivery import BrokerResponse
from brokers.wire.errors import Error
from brokers.wire.versions import Api
from controller.operator.comparison import with_memory
from controller.operator.counts import Counts
from controller.operator.health import troubles
from controller.operator.partitions import Only, PartitionQuery, partition_page
from controller.operator.reasons import explain
from state_machines.model.min_isr import UNKNOWN
from state_machines.model.refusals import Refusals
from tests.kit.kafka.world import KafkaWorld, in_world

ANOTHER_ID = int(Error.INCONSISTENT_TOPIC_ID)


async def running(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2, 3), (2, 3, 1), leaders=True)
    await w.topic("u", (3, 1), leaders=True)
    await w.serve()
    w.forget()


def row(w: KafkaWorld, topic: str, partition: int) -> int:
    found = w.term.cluster.find(topic, partition)
    assert found is not None
    return found


def respond(
    w: KafkaWorld, broker: int, rows: Mapping[int, bool] | range, failed: tuple[tuple[int, int], ...] = (), top: int = 0
) -> None:
    epoch = w.term.cluster.brokers[broker].epoch
    w.witness.receive(BrokerResponse(broker, epoch, Api.LEADER_AND_ISR, top, failed, rows))


def refuse(w: KafkaWorld, broker: int, *partitions: tuple[str, int], error: int = ANOTHER_ID) -> None:
    rows = [row(w, *one) for one in partitions]
    respond(w, broker, dict.fromkeys(rows, False), tuple((i, error) for i in rows))


def refused(w: KafkaWorld) -> list[tuple[str, int, list[int]]]:
    query = PartitionQuery(None, frozenset({Only.REFUSED}), 100, None)
    return [(p.topic, p.partition, p.refused_by) for p in partition_page(w.term.cluster, query, UNKNOWN).items]


@in_world(before=running)
async def test_a_refused_replica_is_in_every_view_with_a_way_out_that_keeps_old_records_away(w: KafkaWorld) -> None:
    refuse(w, 3, ("t", 0), ("t", 1))
    cluster = w.term.cluster
    assert refused(w) == [("t", 0, [3]), ("t", 1, [3])]
    [told] = troubles(cluster, Counts(), 0, w.term)
    assert told.startswith("broker 3 refuses 2 partitions since 2")
    assert told.endswith("with INCONSISTENT_TOPIC_ID (103), the first is t-0: regent explain t 0")
    found = explain(cluster, row(w, "t", 0), unclean=False)
    assert "3 is in it, and follows nobody: the broker refuses the partition" in found.isr
    assert "catches up" not in found.isr
    assert "move the directory t-0 out of its log directories" in found.would_change[0]
    assert "partition.metadata" not in str(found), "the old id would bring old records into the new topic"
    topic, states = w.assignment("t"), {p: w.states["t", p] for p in (0, 1)}
    differing = list(with_memory("t", topic, states, cluster))
    assert [(d.partition, d.broker, d.found) for d in differing] == [
        (p, 3, "refused with INCONSISTENT_TOPIC_ID (103)") for p in (0, 1)
    ]


@in_world(before=running)
async def test_a_leader_that_refuses_leads_nothing(w: KafkaWorld) -> None:
    for broker in (1, 2, 3):
        refuse(w, broker, ("t", 0))
    found = explain(w.term.cluster, row(w, "t", 0), unclean=False)
    assert "broker 1 is to lead at leader epoch 3, and it refuses the partition" in found.leader
    assert "nobody leads" in found.leader
    assert any("all replicas refuse it" in way for way in found.would_change)


@in_world(before=running)
async def test_a_follower_out_of_the_isr_that_is_refused_never_adds_itself(w: KafkaWorld) -> None:
    i = row(w, "t", 0)
    before = w.states["t", 0]
    w.term.cluster.observe_leadership(i, replace(before, isr=(1, 2), version=before.version + 1))
    refuse(w, 3, ("t", 0))
    found = explain(w.term.cluster, i, unclean=False)
    assert "3 is not: it refuses the partition with INCONSISTENT_TOPIC_ID (103)" in found.isr
    assert "adds it by itself" not in found.isr


@in_world(before=running)
async def test_a_refusal_ends_when_the_broker_accepts_and_not_by_less(w: KafkaWorld) -> None:
    i, other = row(w, "t", 0), row(w, "t", 1)
    refuse(w, 3, ("t", 0), ("t", 1))
    respond(w, 3, {i: False}, top=int(Error.STALE_CONTROLLER_EPOCH))
    respond(w, 2, {i: False, other: False})
    assert refused(w) == [("t", 0, [3]), ("t", 1, [3])]
    respond(w, 3, {other: False})
    assert refused(w) == [("t", 0, [3])]
    respond(w, 3, range(i, i + 1))
    assert (refused(w), bool(w.term.cluster.refusals)) == ([], False)
    epoch = w.term.cluster.brokers[3].epoch
    late = BrokerResponse(3, epoch - 1, Api.LEADER_AND_ISR, 0, ((i, ANOTHER_ID),), {i: False})
    w.witness.receive(late)
    assert refused(w) == [], "that incarnation is gone"


@in_world(before=running)
async def test_a_failed_log_directory_is_no_refusal(w: KafkaWorld) -> None:
    refuse(w, 3, ("t", 0), error=int(Error.KAFKA_STORAGE_ERROR))
    assert refused(w) == []


@in_world(before=running)
async def test_a_refusal_ends_with_its_broker(w: KafkaWorld) -> None:
    refuse(w, 3, ("t", 0))
    w.die(3)
    await w.settle()
    assert (refused(w), bool(w.term.cluster.refusals)) == ([], False)


@in_world(before=running)
async def test_a_refusal_ends_with_its_topic(w: KafkaWorld) -> None:
    refuse(w, 3, ("t", 0), ("u", 0))
    await w.mark("t")
    await w.propagated()
    assert refused(w) == [("u", 0, [3])]


def test_a_repeated_refusal_keeps_its_time_and_another_error_has_its_own() -> None:
    refusals = Refusals()
    refusals.add(1, [(7, 103), (8, 103)], 5_000)
    refusals.add(1, [(7, 103), (8, 3)], 9_000)
    assert [(i, found.error, found.since_ms) for i, found in refusals.on(1).items()] == [(7, 103, 5_000), (8, 3, 9_000)]
    refusals.end_replicas(7, [1, 2])
    assert list(refusals.on(1)) == [8]
