"""Topics: they appear, grow, vanish and come back under the same name, some of them not to be understood."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from metadata_store import paths
from metadata_store.codecs.topic import encode_topic
from state_machines.decisions.topic_change import new_partitions
from state_machines.model.types import Assignment, PartitionState
from tests.kit.kafka.parts import LEADER_AND_ISR, UPDATE_METADATA, loses_connection
from tests.kit.kafka.world import KafkaWorld, in_world


async def running(w: KafkaWorld, ibp: str = "3.9") -> None:
    await w.topic("t", (1, 2, 3), leaders=True)
    await w.serve(ibp)
    w.forget()


@pytest.mark.kafka(
    "ControllerIntegrationTest.testTopicCreation", "ControllerIntegrationTest.testTopicCreationWithOfflineReplica"
)
@pytest.mark.seed("S4-39", "S4-40", "S4-41", "S4-42", "S4-43", "S4-7", "S4-8")
@in_world(before=running)
async def test_a_new_topic_starts_on_its_live_replicas(w: KafkaWorld) -> None:
    await w.topic("new", (3, 1, 9), (9, 2))
    await w.propagated()
    assert w.leaders()["new", 0] == (3, (3, 1))
    assert w.leaders()["new", 1] == (2, (2,))
    assert w.states["new", 0].leader_epoch == w.states["new", 0].version == 0
    assert w.wires.is_new(1) == {("new", 0): True}
    assert w.wires.is_new(2) == {("new", 1): True}
    assert w.wires.last_sent(2, UPDATE_METADATA) == {("new", 0): (3, 0), ("new", 1): (2, 0)}


@in_world(before=running)
async def test_a_new_topic_without_a_live_replica_waits_for_one(w: KafkaWorld) -> None:
    await w.topic("waits", (8, 9))
    await w.propagated()
    assert ("waits", 0) not in w.leaders()
    row = w.term.cluster.find("waits", 0)
    assert row is not None
    assert w.term.cluster.rows[row].state is PartitionState.NEW
    await w.boot(9)
    await w.propagated()
    assert w.leaders()["waits", 0] == (9, (9,))
    assert w.wires.is_new(9)["waits", 0]


@pytest.mark.kafka("ControllerIntegrationTest.testTopicPartitionExpansion")
@pytest.mark.seed("S4-79")
@in_world(before=running)
async def test_added_partitions_start_and_the_others_stay_as_they_are(w: KafkaWorld) -> None:
    before = w.states["t", 0]
    await w.expand("t", (2, 3), (3, 1))
    await w.propagated()
    assert w.states["t", 0] == before
    assert w.leaders()["t", 1] == (2, (2, 3))
    assert w.leaders()["t", 2] == (3, (3, 1))
    assert set(w.wires.is_new(3)) == {("t", 1), ("t", 2)}
    await w.expand("t", (1, 2))
    await w.propagated()
    assert w.leaders()["t", 3] == (1, (1, 2)), "the watch is armed again"
    w.agreed()


async def crowd(w: KafkaWorld, topics: int = 30) -> list[str]:
    """Topics of two partitions each, and a term."""
    names = [f"topic-{number:02d}" for number in range(topics)]
    for name in names:
        await w.topic(name, (1, 2, 3), (2, 3, 1), leaders=True)
    await running(w)
    return names


async def all_change(w: KafkaWorld, names: list[str]) -> None:
    """Each grows, but the first, which vanishes, the second, which is another one, and the third, which breaks."""
    w.server.hold_watches(w.active.zk.session_id)
    for name in names[3:]:
        await w.expand(name, (3, 1))
    for name in names[:2]:
        await w.delete_topic(name)
        w.removed |= {(name, 0), (name, 1)}
    await w.topic(names[1], (2, 1), topic_id=bytes(15) + b"x")
    await w.operator.set(paths.topic(names[2]), b"broken", -1)
    await w.active.zk.sync()  # so that watches which are armed later do not fire for all this again
    w.server.release_watches(w.active.zk.session_id)


def as_they_should_be(w: KafkaWorld, names: list[str]) -> None:
    led = w.leaders()
    assert all(led[name, 2] == (3, (3, 1)) for name in names[3:])
    assert (names[0], 0) not in led
    assert led[names[1], 0] == (2, (2, 1))
    assert (names[1], 1) not in led
    assert w.term.cluster.topic(names[0]) is None
    assert list(w.counters.malformed) == [paths.topic(names[2])]


@in_world()
async def test_topics_that_change_together_are_read_together(w: KafkaWorld) -> None:
    names = await crowd(w)
    reads = mock.Mock(wraps=w.term.controller.store.load_topics)
    with mock.patch.object(w.term.controller.store, "load_topics", reads):
        await all_change(w, names)
        await w.propagated()
    as_they_should_be(w, names)
    assert reads.call_count < 6
    for name in names[3:]:
        await w.expand(name, (2, 3))
    await w.propagated()
    assert all(w.leaders()[name, 3] == (2, (2, 3)) for name in names[3:]), "every watch is armed again"


@in_world()
async def test_no_more_changed_topics_are_read_together_than_the_loop_can_spare(w: KafkaWorld) -> None:
    names = await crowd(w)
    reads = mock.Mock(wraps=w.term.controller.store.load_topics)
    with (
        mock.patch.object(w.term.controller.store, "load_topics", reads),
        mock.patch("controller.kafka.topics.topic_change.PARTITIONS_MAX", 10),
    ):
        await all_change(w, names)
        await w.propagated()
    as_they_should_be(w, names)
    assert max(len(call.args[0]) for call in reads.call_args_list) == 5


@in_world()
async def test_no_more_new_topics_are_started_together_than_the_loop_can_spare(w: KafkaWorld) -> None:
    await w.begin_term()
    started = mock.Mock(wraps=new_partitions)
    names = [f"new-{n}" for n in range(7)]
    with (
        mock.patch("controller.kafka.topics.topic_change.STARTED_MAX", 4),
        mock.patch("controller.kafka.topics.topic_change.new_partitions", started),
    ):
        w.server.hold_watches(w.active.zk.session_id)
        for name in names:
            await w.topic(name, (1, 2, 3), (2, 3, 1))
        w.server.release_watches(w.active.zk.session_id)
        await w.propagated()
    assert w.leaders() == {(name, p): (p + 1, (1, 2, 3) if p == 0 else (2, 3, 1)) for name in names for p in (0, 1)}
    assert [len(call.kwargs["rows"]) for call in started.call_args_list] == [4, 4, 4, 2]


@pytest.mark.parametrize("lost_at", range(6))
@in_world()
async def test_topics_that_were_taken_together_are_not_lost_with_the_connection(w: KafkaWorld, lost_at: int) -> None:
    names = await crowd(w)
    await all_change(w, names)
    with loses_connection(w.server, w.active.zk, lost_at):
        await w.propagated()
    as_they_should_be(w, names)


@in_world(before=running)
async def test_a_topic_that_vanished_is_forgotten_and_one_of_the_same_name_starts_anew(w: KafkaWorld) -> None:
    old = w.assignment("t").topic_id
    await w.delete_topic("t")
    await w.settle()
    assert w.term.cluster.topic("t") is None
    await w.topic("t", (2, 1), (3, 1), topic_id=bytes(15) + b"x")
    await w.propagated()
    assert w.leaders() == {("t", 0): (2, (2, 1)), ("t", 1): (3, (3, 1))}
    [told] = [t for e in w.wires.requests(2, LEADER_AND_ISR) for t in e.topic_states if t.topic_name == "t"]
    assert told.topic_id.bytes != old
    w.agreed()


@in_world(before=running)
async def test_a_topic_recreated_before_the_next_look_is_a_new_one(w: KafkaWorld) -> None:
    w.server.hold_watches(w.active.zk.session_id)
    await w.delete_topic("t")
    await w.topic("t", (2, 1), topic_id=bytes(15) + b"x")
    w.server.release_watches(w.active.zk.session_id)
    await w.propagated()
    assert w.leaders() == {("t", 0): (2, (2, 1))}
    w.agreed()


@in_world(before=running)
async def test_a_topic_recreated_between_two_looks_is_a_new_one(w: KafkaWorld) -> None:
    """Its data watch fired for a growth; before that is handled it is gone, and back before the next look."""
    really = w.term.controller.store.load_topics

    async def gone_then_back(*names: Any) -> Any:
        w.term.controller.store.load_topics = really  # type: ignore[method-assign]
        await w.delete_topic("t")
        found = await really(*names)
        await w.topic("t", (2, 1), topic_id=bytes(15) + b"x")
        return found

    w.term.controller.store.load_topics = gone_then_back  # type: ignore[method-assign,assignment]
    await w.expand("t", (2, 3))
    await w.propagated()
    assert w.leaders() == {("t", 0): (2, (2, 1))}
    w.agreed()


@pytest.mark.parametrize("ibp", ["2.7-IV1", "3.9"])
@pytest.mark.seed("S4-85")
@in_world()
async def test_state_znodes_created_while_no_daemon_ran_are_taken_as_they_are(w: KafkaWorld, ibp: str) -> None:
    await w.topic("t", (1, 2, 3), (2, 3, 1), leaders=True, isr=(1, 2, 3), epoch=9)
    await w.serve(ibp)
    assert w.states["t", 0].leader_epoch == 9
    assert w.wires.last_sent(2, LEADER_AND_ISR)["t", 0] == (1, 9)
    w.agreed()


MALFORMED = {
    "no JSON": b"{",
    "NULL": None,
    "unknown version": b'{"version":9,"partitions":{"0":[1]}}',
    "a replica twice": b'{"version":3,"partitions":{"0":[1,1]}}',
    "no replicas": b'{"version":3,"partitions":{"0":[]}}',
    "bad id": b'{"version":3,"partitions":{"0":[1]},"topic_id":"short"}',
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("found_at", ["failover", "watch"])
@in_world()
async def test_a_malformed_topic_waits_until_it_is_repaired(w: KafkaWorld, data: bytes | None, found_at: str) -> None:
    if found_at == "failover":
        await w.operator.create(paths.topic("bad"), data)
        await running(w)
    else:
        await running(w)
        await w.operator.create(paths.topic("bad"), data)
    await w.topic("good", (2, 3))
    await w.settle()
    assert not w.term.gate.ended
    assert paths.topic("bad") in w.counters.malformed
    assert w.leaders()["good", 0] == (2, (2, 3))
    w.server.reconnect(w.active.zk.session_id)
    await w.settle()
    await w.operator.set(paths.topic("bad"), encode_topic({0: Assignment((3, 1))}, bytes(15) + b"b"), -1)
    await w.propagated()
    assert w.leaders()["bad", 0] == (3, (3, 1))
    assert paths.topic("bad") not in w.counters.malformed
    await w.operator.set(paths.topic("good"), b"broken", -1)
    await w.settle()
    assert w.leaders()["good", 0] == (2, (2, 3)), "what ran goes on"
    assert not w.term.gate.ended


@in_world()
async def test_a_partition_with_a_malformed_state_is_left_alone_until_it_is_repaired(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2), (1, 2), leaders=True)
    await w.operator.set(paths.state("t", 0), b"{}", 0)
    await w.serve()
    w.die(1)
    await w.propagated()
    assert w.leaders() == {("t", 1): (2, (2,))}
    node = w.node(paths.state("t", 0))
    assert node is not None
    assert (node.data, node.stat.version) == (b"{}", 1)
    await w.operator.set(
        paths.state("t", 0), b'{"version":1,"leader":1,"leader_epoch":5,"controller_epoch":0,"isr":[1,2]}', 1
    )
    await w.propagated()
    assert w.leaders()["t", 0] == (2, (2,))
    w.agreed()
