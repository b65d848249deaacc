"""Topics are deleted: by a marker or a call, with brokers that are gone, refuse or are slow, and unexpected znodes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from unittest import mock

import pytest

from brokers.listener.controller_listener import NotController
from brokers.outbound.delivery import BrokerResponse
from brokers.wire.errors import Error
from brokers.wire.versions import Api
from controller.kafka.path.events import EventKind
from controller.kafka.requests.values import DeletedTopic
from controller.kafka.topics import deletion
from metadata_store import paths
from metadata_store.acl import ALL
from metadata_store.codecs.topic import encode_topic
from state_machines.machines.draft import Draft
from state_machines.model.types import LEADER_DURING_DELETE, Assignment, PartitionState
from tests.kit.deadlines import eventually
from tests.kit.kafka.parts import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, loses_connection
from tests.kit.kafka.world import KafkaWorld, in_world

pytestmark = pytest.mark.seed("S4-78")


async def running(w: KafkaWorld) -> None:
    """t: two partitions on all brokers; u stays."""
    await w.topic("t", (1, 2, 3), (2, 3, 1), leaders=True)
    await w.topic("u", (3, 1), leaders=True)
    await w.serve()
    w.forget()


def gone(w: KafkaWorld, *names: str) -> bool:
    """Nothing is left of topics, in ZooKeeper and in memory."""
    cluster = w.term.cluster
    return not any(w.znodes_of(name) or cluster.topic(name) for name in names) and not cluster.deletions


@pytest.mark.kafka("DeleteTopicTest.testDeleteTopicWithAllAliveReplicas")
@pytest.mark.seed("S4-30", "S4-37")
@in_world(before=running)
async def test_a_topic_with_a_marker_is_deleted(w: KafkaWorld) -> None:
    await w.mark("t")
    await w.propagated()
    assert gone(w, "t")
    assert all(sorted(w.wires.deleted(b)) == [("t", 0), ("t", 1)] for b in (1, 2, 3))
    assert all(w.wires.last_sent(b, UPDATE_METADATA)["t", 1] == (LEADER_DURING_DELETE, 0) for b in (1, 2, 3))
    assert all(w.wires.requests(b, LEADER_AND_ISR) == [] for b in (1, 2, 3))
    assert list(w.leaders()) == [("u", 0)]
    assert {p.leader_epoch for _, p in w.wires.partitions(1, STOP_REPLICA)} == {-2}
    await w.mark("u")
    await w.propagated()
    assert gone(w, "u"), "the watch is armed again"


@pytest.mark.kafka("ControllerChannelManagerTest.testStopReplicaGroupsByBroker")
@in_world()
async def test_many_topics_go_in_few_multis_and_one_request_for_each_broker(w: KafkaWorld) -> None:
    names = [f"topic-{n:02d}" for n in range(40)]
    for name in names:
        await w.topic(name, (1, 2, 3), (2, 3, 1), (3, 1, 2), leaders=True)
    await running(w)
    w.server.hold_watches(w.active.zk.session_id)
    await w.mark(*names)
    w.server.release_watches(w.active.zk.session_id)
    await w.propagated()
    assert gone(w, *names)
    assert w.active.script.writes[0] == [paths.CONTROLLER_EPOCH], "who is not the controller has no log deleted"
    assert len(w.active.script.writes) == 3
    assert [len(w.wires.requests(b, STOP_REPLICA)) for b in (1, 2, 3)] == [1, 1, 1]
    last = w.active.script.writes[-1]
    assert last.index(paths.topic_config(names[7])) < last.index(paths.deletion(names[7]))


@pytest.mark.parametrize("at_once", [1, 6, 1_000])
@in_world()
async def test_many_stop_replica_responses_are_counted_some_at_a_time(w: KafkaWorld, at_once: int) -> None:
    await w.topic("t", (1, 2, 3), (2, 3, 1), (3, 1, 2), leaders=True)
    await w.serve()
    counted: list[int] = []

    def judged(draft: Draft, answers: Sequence[BrokerResponse]) -> None:
        counted.append(sum(len(answer.rows) for answer in answers))
        judge(draft, answers)

    judge = deletion.judge_answers
    with (
        mock.patch("controller.kafka.topics.deletion.COUNTED_MAX", at_once),
        mock.patch("controller.kafka.topics.deletion.judge_answers", judged),
    ):
        await w.mark("t")
        await w.propagated()
    assert gone(w, "t")
    assert sum(counted) == 9
    assert max(counted) <= max(at_once, 3), "an answer is counted as a whole"


@pytest.mark.kafka("DeleteTopicTest.testRecreateTopicAfterDeletion")
@in_world(before=running)
async def test_a_topic_of_the_same_name_is_a_new_one(w: KafkaWorld) -> None:
    for life in range(2):
        await w.mark("t")
        await w.propagated()
        w.wires.frames.clear()
        await w.topic("t", (2, 1), (1, 3), topic_id=bytes(15) + bytes((life,)))
        await w.propagated()
        assert w.leaders() == {("u", 0): (3, (3, 1)), ("t", 0): (2, (2, 1)), ("t", 1): (1, (1, 3))}
        assert w.wires.last_sent(1, LEADER_AND_ISR) == {("t", 0): (2, 0), ("t", 1): (1, 0)}
        assert w.wires.requests(1, STOP_REPLICA) == []
        w.agreed()


# -- brokers


@pytest.mark.kafka(
    "DeleteTopicTest.testResumeDeleteTopicWithRecoveredFollower",
    "DeleteTopicTest.testResumeDeleteTopicOnControllerFailover",
)
@pytest.mark.parametrize("failover", [False, True], ids=["the same term", "another term"])
@in_world(before=running)
async def test_a_broker_that_is_down_is_waited_for(w: KafkaWorld, failover: bool) -> None:
    w.die(3)
    await w.propagated()
    await w.mark("t")
    await w.propagated()
    assert paths.deletion("t") in w.znodes_of("t")
    assert sorted(w.wires.deleted(1)) == sorted(w.wires.deleted(2)) == [("t", 0), ("t", 1)]
    if failover:
        await w.active.crash()
        await w.serve()
        assert w.wires.deleted(1).count(("t", 0)) == 2, "who takes over starts again from the marker"
    w.wires.frames.clear()
    await w.boot(3)
    await w.propagated()
    assert gone(w, "t")
    assert sorted(w.wires.deleted(3)) == [("t", 0), ("t", 1)]
    assert w.wires.deleted(1) == [], "what is deleted is not deleted again"


@in_world(before=running)
async def test_a_broker_that_dies_before_its_response_is_sent_the_deletion_again(w: KafkaWorld) -> None:
    w.wires.silent.add(2)
    await w.mark("t")
    await eventually(lambda: w.wires.deleted(2))
    await w.settle()
    assert w.term.controller.deletion_queue.under_way
    w.die(2)
    await w.propagated()
    assert not w.term.controller.deletion_queue.under_way, "nobody waits for the answer of a broker that is gone"
    assert not gone(w, "t")
    w.wires.respond(2)
    await w.boot(2)
    await w.propagated()
    assert gone(w, "t")


@in_world(before=running)
async def test_a_response_of_a_broker_from_before_its_restart_deletes_nothing(w: KafkaWorld) -> None:
    """Its log may be back, on a disk that was mounted late: the present incarnation has to respond itself."""
    w.wires.silent.add(2)
    await w.mark("t")
    await eventually(lambda: w.wires.deleted(2))
    former = w.broker_epoch(2)
    await w.bounce(2)
    await w.settle()
    rows = {i: True for p in (0, 1) if (i := w.term.cluster.find("t", p)) is not None}
    for epoch in (former, former + 1_000):
        w.term.controller.deletion_queue.answered(BrokerResponse(2, epoch, Api.STOP_REPLICA, 0, (), rows))
        await w.settle()
    w.wires.refused[2] = {("t", 1): Error.KAFKA_STORAGE_ERROR}
    w.wires.respond(2)
    await w.propagated()
    assert not gone(w, "t")
    w.wires.refused.clear()
    await w.bounce(2)
    await w.propagated()
    assert gone(w, "t")


@in_world(before=running)
async def test_a_deletion_that_a_broker_refused_as_stale_goes_on_at_its_next_registration(w: KafkaWorld) -> None:
    """The answer names no partition. Kafka's controller waits for ever; here the broker's next registration helps."""
    w.wires.errors[2] = Error.STALE_BROKER_EPOCH
    await w.mark("t")
    await eventually(lambda: w.wires.deleted(2))
    await w.settle()
    assert not gone(w, "t")
    del w.wires.errors[2]
    await w.bounce(2)
    await w.propagated()
    assert gone(w, "t")
    assert not w.term.gate.ended


@in_world(before=running)
async def test_a_log_that_could_not_be_deleted_waits_for_a_restart_and_not_for_other_events(w: KafkaWorld) -> None:
    w.wires.refused[2] = {("t", 1): Error.KAFKA_STORAGE_ERROR}
    await w.mark("t")
    await w.propagated()
    w.wires.refused.clear()
    w.wires.frames.clear()
    w.die(1)
    await w.propagated()
    await w.mark("u")
    await w.propagated()
    assert w.wires.deleted(2) == []
    await w.bounce(2)
    await w.boot(1)
    await w.propagated()
    assert gone(w, "t", "u")
    assert w.wires.deleted(2) == [("t", 1)], "only what was not deleted"


@in_world()
async def test_a_bounded_number_of_partitions_is_under_way(w: KafkaWorld) -> None:
    names = [f"topic-{n:02d}" for n in range(10)]
    for name in names:
        await w.topic(name, (1, 2), (2, 3), leaders=True)
    await w.topic("large", *[(1, 3)] * 6, leaders=True)
    await running(w)
    with (
        mock.patch("controller.kafka.path.agenda.PARTITIONS_MAX", 4),
        mock.patch("controller.kafka.path.agenda.TURN_PARTITIONS", 2),
    ):
        w.wires.silent.add(3)
        await w.mark("large", *names)
        await eventually(lambda: len(w.wires.deleted(3)) == 6)
        await w.settle()
        assert list(w.term.controller.deletion_queue.under_way.values()) == [6], (
            "what is larger than the bound is alone"
        )
        largest = 0

        def seen() -> bool:
            nonlocal largest
            largest = max(largest, sum(w.term.controller.deletion_queue.under_way.values()))
            return gone(w, "large", *names)

        w.wires.respond(3)
        await eventually(lambda: not w.znodes_of("large"))
        await eventually(seen)
        assert largest <= 4
    assert list(w.leaders()) == [("t", 0), ("t", 1), ("u", 0)]


@in_world()
async def test_topics_that_wait_for_a_broker_do_not_hold_up_others(w: KafkaWorld) -> None:
    for n in range(4):
        await w.topic(f"waits-{n}", (9,), (1, 9), leaders=True)
    await running(w)
    with mock.patch("controller.kafka.path.agenda.PARTITIONS_MAX", 2):
        await w.mark(*[f"waits-{n}" for n in range(4)], "t")
        await w.propagated()
    assert w.znodes_of("t") == []
    assert w.znodes_of("waits-0")
    await w.boot(9)
    await w.propagated()
    assert gone(w, *[f"waits-{n}" for n in range(4)])


@in_world(before=running)
async def test_brokers_without_a_replica_are_sent_the_deletion_before_the_znodes_go(w: KafkaWorld) -> None:
    """Nobody would tell it later: a new controller does not know the topic any more."""
    w.wires.silent_to = UPDATE_METADATA
    w.wires.silent.add(2)
    await w.mark("u")
    await eventually(lambda: w.wires.deleted(1) and w.wires.deleted(3))
    await w.settle()
    assert w.term.controller.deletion_queue.ended
    assert not gone(w, "u")
    w.wires.respond(2)
    await w.propagated()
    assert gone(w, "u")


@in_world(before=running)
async def test_a_broker_that_returns_is_sent_the_topics_that_were_deleted_meanwhile(w: KafkaWorld) -> None:
    """Its session expired while it was frozen: it comes back with the metadata that it had."""
    await w.topic("again", (3, 1), leaders=True)
    w.die(2)
    await w.propagated()
    await w.mark("u", "again")
    await w.propagated()
    assert gone(w, "u", "again")
    await w.topic("again", (1, 3))
    await w.propagated()
    w.wires.frames.clear()
    await w.boot(2)
    await w.propagated()
    assert w.wires.last_sent(2, UPDATE_METADATA)["u", 0] == (LEADER_DURING_DELETE, 0)
    assert w.wires.last_sent(2, UPDATE_METADATA)["again", 0] == (1, 0)


@in_world(before=running)
async def test_a_deletion_that_was_left_half_done_ends_every_partition_that_its_topic_names(w: KafkaWorld) -> None:
    """The term before has deleted a state znode already; a broker that was away then knows the partition still."""
    await w.active.crash()
    await w.mark("t")
    await w.delete_state("t", 1)
    w.wires.frames.clear()
    await w.serve()
    await w.propagated()
    assert gone(w, "t")
    for b in (1, 2, 3):
        shown = w.wires.last_sent(b, UPDATE_METADATA)
        assert [shown["t", p] for p in (0, 1)] == [(LEADER_DURING_DELETE, 0)] * 2


@in_world(before=running)
async def test_deleted_topics_are_sent_to_brokers_that_register_until_no_broker_is_absent(w: KafkaWorld) -> None:
    """Also to who was away when the term began and has no replica: nobody knew that it would come back."""
    await w.mark("u")
    await w.propagated()
    assert gone(w, "u")
    await w.boot(9)
    await w.propagated()
    assert w.wires.last_sent(9, UPDATE_METADATA)["u", 0] == (LEADER_DURING_DELETE, 0)
    w.die(2)
    await w.propagated()
    w.wires.frames.clear()
    await w.boot(2)
    await w.propagated()
    assert ("u", 0) not in w.wires.last_sent(2, UPDATE_METADATA)


# -- what others do meanwhile


@in_world(before=running)
async def test_a_reassignment_comes_to_its_end_first(w: KafkaWorld) -> None:
    moving = Assignment((1, 2, 3), (), (3,))
    data = encode_topic({0: moving, 1: Assignment((2, 3, 1))}, w.assignment("t").topic_id)
    await w.operator.set(paths.topic("t"), data, w.assignment("t").version)
    await w.propagated()
    w.term.cluster.observe_assignments("t", w.assignment("t").version, {0: moving})
    await w.mark("t")
    await w.propagated()
    assert not gone(w, "t")
    assert w.wires.deleted(1) == []
    w.term.cluster.observe_assignments("t", w.assignment("t").version + 1, {0: Assignment((1, 2, 3))})
    data = encode_topic({0: Assignment((1, 2, 3)), 1: Assignment((2, 3, 1))}, w.assignment("t").topic_id)
    await w.operator.set(paths.topic("t"), data, w.assignment("t").version)
    await w.propagated()
    assert gone(w, "t")


@pytest.mark.kafka(
    "DeleteTopicTest.testIncreasePartitionCountDuringDeleteTopic", "DeleteTopicTest.testAddPartitionDuringDeleteTopic"
)
@pytest.mark.parametrize("failover", [False, True], ids=["the same term", "another term"])
@in_world(before=running)
async def test_partitions_that_are_added_meanwhile_do_not_start(w: KafkaWorld, failover: bool) -> None:
    """KAFKA-6612: taken back; those that a new controller finds go with the topic."""
    w.die(3)
    await w.propagated()
    await w.mark("t")
    await w.propagated()
    if failover:
        await w.active.crash()
    await w.expand("t", (1, 2), (2, 1))
    if failover:
        await w.begin_term()
    await w.propagated()
    assert set(w.leaders()) == {("t", 0), ("t", 1), ("u", 0)}
    assert failover or set(w.assignment("t").partitions) == {0, 1}
    assert failover or w.assignment("t").topic_id is not None
    await w.boot(3)
    await w.propagated()
    assert gone(w, "t")


@in_world(before=running)
async def test_a_topic_that_was_replaced_by_hand_is_deleted_by_its_marker(w: KafkaWorld) -> None:
    w.wires.silent.add(3)
    await w.mark("t")
    await eventually(lambda: w.wires.deleted(3))
    w.server.hold_watches(w.active.zk.session_id)
    await w.delete_topic("t")
    await w.topic("t", (1, 2), topic_id=bytes(15) + b"x")
    w.wires.respond(3)
    await w.propagated()
    w.server.release_watches(w.active.zk.session_id)
    await w.propagated()
    assert gone(w, "t")
    assert w.wires.deleted(1).count(("t", 0)) == 2, "each of its lives"


@in_world(before=running)
async def test_a_topic_that_vanishes_while_it_is_deleted_takes_its_marker_along(w: KafkaWorld) -> None:
    w.wires.silent.add(3)
    await w.mark("t")
    await eventually(lambda: w.wires.deleted(3))
    await w.delete_topic("t")
    await w.settle()
    assert gone(w, "t")
    w.wires.respond(3)
    await w.propagated()
    w.agreed()


@in_world(before=running)
async def test_unexpected_znodes_below_a_topic_are_deleted(w: KafkaWorld) -> None:
    for path in (
        paths.partition("t", 9),
        paths.state("t", 9),
        paths.state("t", 1) + "/note",
        paths.topic("t") + "/notes",
        paths.topic("t") + "/notes/deep",
    ):
        await w.operator.create(path, b"?")
    await w.mark("t")
    await w.propagated()
    assert gone(w, "t")


@pytest.mark.kafka("DeleteTopicTest.testDeletingPartiallyDeletedTopic")
@in_world()
async def test_what_is_half_deleted_is_finished(w: KafkaWorld) -> None:
    """KAFKA-6650: partitions without a state znode, and without any."""
    await w.topic("t", (1, 2), (2, 1), (1, 2), leaders=True)
    await w.operator.delete(paths.state("t", 0), -1)
    await w.operator.delete(paths.state("t", 1), -1)
    await w.operator.delete(paths.partition("t", 1), -1)
    await w.mark("t")
    await w.serve()
    assert gone(w, "t")
    await w.topic("never-started", (1, 2))
    await w.operator.create(paths.topic("empty"), encode_topic({}, bytes(15) + b"e"))
    await w.mark("never-started", "empty")
    await w.propagated()
    assert gone(w, "never-started", "empty")


@in_world(before=running)
async def test_znodes_that_others_write_meanwhile_are_read_again(w: KafkaWorld) -> None:
    async def a_leader_writes() -> None:
        await w.leader_writes("t", 0, (1, 2))

    w.active.script.at(paths.state("t", 0), a_leader_writes)
    await w.mark("t")
    await w.propagated()
    assert gone(w, "t")
    assert not w.term.gate.ended


@in_world(before=running)
async def test_znodes_that_may_not_be_deleted_are_reported_and_tried_again(w: KafkaWorld) -> None:
    w.restrict(paths.partition("t", 0))
    await w.mark("t")
    await w.propagated()
    assert not gone(w, "t")
    assert not w.term.gate.ended
    [failure] = w.counters.failures
    assert "tried again" in failure
    w.restrict(paths.partition("t", 0), ALL)
    await w.mark("u")
    await w.propagated()
    assert gone(w, "t", "u")


# -- markers


@pytest.mark.kafka("DeleteTopicTest.testDeleteNonExistingTopic")
@in_world()
async def test_markers_of_unknown_topics_are_removed(w: KafkaWorld) -> None:
    await w.mark("never-was")
    await running(w)
    await w.propagated()
    assert w.node(paths.deletion("never-was")) is None
    await w.mark("nor-this")
    await w.propagated()
    assert w.node(paths.deletion("nor-this")) is None
    assert set(w.leaders()) == {("t", 0), ("t", 1), ("u", 0)}


@in_world(before=running)
async def test_a_topic_that_was_not_read_yet_keeps_its_marker(w: KafkaWorld) -> None:
    w.server.hold_watches(w.active.zk.session_id)
    await w.topic("fresh", (1, 2))
    await w.mark("fresh")
    w.term.queue.signal(EventKind.TOPIC_DELETION)
    await w.propagated()
    assert w.node(paths.deletion("fresh")) is not None
    w.server.release_watches(w.active.zk.session_id)
    await w.propagated()
    assert gone(w, "fresh")


@in_world()
async def test_a_malformed_topic_is_deleted_once_it_is_repaired(w: KafkaWorld) -> None:
    await w.operator.create(paths.topic("bad"), b"{")
    await w.mark("bad")
    await running(w)
    await w.propagated()
    assert w.node(paths.deletion("bad")) is not None
    await w.operator.set(paths.topic("bad"), encode_topic({0: Assignment((3, 1))}, bytes(15) + b"b"), -1)
    await w.propagated()
    assert gone(w, "bad")
    assert not w.term.gate.ended


@in_world()
async def test_a_state_that_cannot_be_understood_goes_with_its_topic(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2), (2, 3), leaders=True)
    await w.operator.set(paths.state("t", 0), b"{}", 0)
    await w.begin_term()
    w.wires.silent.add(3)
    await w.mark("t")
    await eventually(lambda: w.wires.deleted(3))
    await w.operator.delete(paths.state("t", 0), -1)
    await w.settle()
    assert {row.state for row in w.term.cluster.rows} == {PartitionState.NON_EXISTENT}
    w.wires.respond(3)
    await w.propagated()
    assert gone(w, "t")
    assert w.counters.malformed == {}


@pytest.mark.kafka("DeleteTopicTest.testDisableDeleteTopic")
@in_world(delete_topic_enable=False)
async def test_deletion_switched_off_removes_the_marker_and_keeps_the_topic(
    w: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    await w.topic("marked-before", (1, 2), leaders=True)
    await w.mark("marked-before")
    await running(w)
    await w.mark("t", "never-was")
    await w.propagated()
    assert not any(w.node(paths.deletion(name)) for name in ("t", "never-was", "marked-before"))
    assert set(w.leaders()) == {("t", 0), ("t", 1), ("u", 0), ("marked-before", 0)}
    assert all(w.wires.deleted(b) == [] for b in (1, 2, 3))
    assert "delete.topic.enable is false" in caplog.text
    [only] = (await w.delete_topics("t")).topics
    assert only.error is Error.TOPIC_DELETION_DISABLED


# -- the connection, the role


@pytest.mark.parametrize("lost_at", range(14))
@in_world(before=running)
async def test_a_lost_connection_only_delays_a_deletion(w: KafkaWorld, lost_at: int) -> None:
    await w.mark("t", "u")
    with loses_connection(w.server, w.active.zk, lost_at):
        await w.propagated()
    assert gone(w, "t", "u")
    assert not w.term.gate.ended


@pytest.mark.parametrize("lost_at", range(3))
@in_world(before=running)
async def test_a_deletion_whose_reply_is_lost_is_found(w: KafkaWorld, lost_at: int) -> None:
    path = (paths.state("t", 0), paths.topic("t"), paths.deletion("never-was"))[lost_at]
    w.active.script.at(path, lambda: w.server.lose_replies(w.active.zk.session_id))
    await w.mark("never-was", "t")
    await w.propagated()
    assert gone(w, "t", "never-was")
    assert not w.term.gate.ended


@pytest.mark.seed("S4-86")
@pytest.mark.parametrize("path", [paths.state("t", 0), paths.topic("t")])
@in_world(before=running)
async def test_a_fenced_term_deletes_no_topic(w: KafkaWorld, path: str) -> None:
    w.active.script.at(path, w.seize)
    await w.mark("t")
    assert "another controller" in await w.active.ended()
    assert w.node(path) is not None


# -- the call


@in_world(before=running)
async def test_a_call_has_its_response_once_the_topics_are_gone(w: KafkaWorld) -> None:
    by_id = w.assignment("u").topic_id
    assert by_id is not None
    w.wires.silent.add(3)
    asked = asyncio.create_task(w.delete_topics("t", by_id, "never-was", bytes(15) + b"?"))
    await eventually(lambda: len(w.wires.deleted(3)) == 3)
    await w.settle()
    assert not asked.done()
    w.wires.respond(3)
    reply = await asked
    assert gone(w, "t", "u")
    assert [topic.error for topic in reply.topics] == [
        Error.NONE, Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID,
    ]  # fmt: skip
    assert reply.topics[1] == DeletedTopic("u", by_id, Error.NONE)
    assert reply.topics[3] == DeletedTopic(None, bytes(15) + b"?", Error.UNKNOWN_TOPIC_ID)


@pytest.mark.kafka("DeleteTopicTest.testDeleteTopicAlreadyMarkedAsDeleted")
@pytest.mark.parametrize("timeout_ms", [0, -1, 200])
@in_world(before=running)
async def test_a_call_waits_until_its_own_time_out(w: KafkaWorld, timeout_ms: int) -> None:
    w.wires.silent_to = UPDATE_METADATA
    w.wires.silent.update((1, 2, 3))
    [only] = (await w.delete_topics("t", timeout_ms=timeout_ms)).topics
    assert only.error is Error.REQUEST_TIMED_OUT
    again = asyncio.create_task(w.delete_topics("t"))
    await w.settle()
    w.wires.respond(1, 2, 3)
    assert (await again).topics[0].error is Error.NONE, "it goes on, and may be waited for again"
    await w.propagated()
    assert gone(w, "t")


@pytest.mark.kafka("DeleteTopicTest.testResumeDeleteTopicWithRecoveredFollower")
@in_world(before=running)
async def test_a_call_does_not_wait_for_a_broker_that_is_gone(w: KafkaWorld) -> None:
    w.die(3)
    await w.propagated()
    before_s = asyncio.get_running_loop().time()
    [only] = (await w.delete_topics("t")).topics
    assert only.error is Error.NONE
    assert asyncio.get_running_loop().time() - before_s < 0.5
    await w.propagated()
    assert w.znodes_of("t"), "its logs on broker 3 are still to be deleted"
    for b in (1, 2):
        assert w.wires.last_sent(b, UPDATE_METADATA)["t", 0] == (LEADER_DURING_DELETE, 0)
    topic_id = w.assignment("t").topic_id
    assert topic_id is not None
    again = (await w.delete_topics("t", topic_id)).topics
    assert again == [
        DeletedTopic("t", topic_id, Error.UNKNOWN_TOPIC_OR_PARTITION),
        DeletedTopic("t", topic_id, Error.UNKNOWN_TOPIC_OR_PARTITION),
    ], "no broker shows it any more"
    await w.boot(3)
    await w.propagated()
    assert gone(w, "t")


@in_world(before=running)
async def test_a_deletion_is_not_over_by_a_broker_that_refuses_metadata(w: KafkaWorld) -> None:
    """It still shows the topic, whatever it was sent."""
    w.wires.errors[1] = Error.STALE_CONTROLLER_EPOCH
    w.wires.silent_to = UPDATE_METADATA
    w.wires.silent.update((2, 3))
    [only] = (await w.delete_topics("t", timeout_ms=3_000)).topics
    assert only.error is Error.REQUEST_TIMED_OUT
    again = asyncio.create_task(w.delete_topics("t"))
    await w.settle()
    w.wires.respond(2)
    assert (await again).topics[0].error is Error.NONE


@in_world(before=running)
async def test_a_call_waits_until_a_broker_that_returns_was_sent_the_deletion(w: KafkaWorld) -> None:
    """It comes back with the metadata that it had; its snapshot names no deleted topic, and writes follow on that."""
    await w.topic("led-by-2", (2,), leaders=True)
    w.die(2)
    await w.propagated()
    w.wires.silent_to = UPDATE_METADATA
    w.wires.silent.update((1, 3))
    asked = asyncio.create_task(w.delete_topics("t"))
    await w.settle()
    assert not asked.done()
    w.wires.frames.clear()
    written = asyncio.Event()
    w.active.script.at("led-by-2", written.wait)
    await w.boot(2)
    assert (await asked).topics[0].error is Error.NONE
    assert w.wires.last_sent(2, UPDATE_METADATA)["t", 0] == (LEADER_DURING_DELETE, 0)
    written.set()


@in_world(before=running)
async def test_a_deletion_call_waits_a_second_for_a_silent_broker(w: KafkaWorld) -> None:
    w.wires.silent_to = UPDATE_METADATA
    w.wires.silent.add(3)
    before_s = asyncio.get_running_loop().time()
    [only] = (await w.delete_topics("t")).topics
    assert only.error is Error.NONE
    assert 0.9 < asyncio.get_running_loop().time() - before_s < 1.5
    assert (await w.delete_topics("t")).topics[0].error is Error.UNKNOWN_TOPIC_OR_PARTITION
    w.wires.respond(3)
    await w.propagated()
    assert gone(w, "t")


@in_world(before=running)
async def test_a_call_for_a_topic_that_is_reassigned_waits_until_its_own_time_out(w: KafkaWorld) -> None:
    moving = Assignment((1, 2, 3), (), (3,))
    w.term.cluster.observe_assignments("t", w.assignment("t").version, {0: moving})
    [only] = (await w.delete_topics("t", timeout_ms=3_000)).topics
    assert only.error is Error.REQUEST_TIMED_OUT, "brokers show it on, as with Kafka's controller"


@in_world(before=running)
async def test_a_call_whose_marker_is_refused_fails_at_once(w: KafkaWorld) -> None:
    w.restrict(paths.DELETE_TOPICS)
    assert (await w.delete_topics("t")).topics[0].error is Error.UNKNOWN_SERVER_ERROR
    assert not w.term.gate.ended


@pytest.mark.parametrize("when", ["before", "after"])
@in_world(before=running)
async def test_a_deletion_call_is_refused_when_the_term_ends(w: KafkaWorld, when: str) -> None:
    w.wires.silent.add(3)
    asked = asyncio.create_task(w.delete_topics("t"))
    if when == "after":
        await eventually(lambda: w.wires.deleted(3))
    w.term.gate.end("a test")
    with pytest.raises(NotController):
        await asked


@in_world(before=running)
async def test_a_call_that_met_a_lost_connection_is_refused_and_its_marker_stays(w: KafkaWorld) -> None:
    w.active.script.at(paths.deletion("t"), lambda: w.server.lose_replies(w.active.zk.session_id))
    with pytest.raises(NotController):
        await w.delete_topics("t")
    assert (await w.delete_topics("u")).topics[0].error is Error.NONE
    await w.propagated()
    assert gone(w, "t"), "its marker was there"
