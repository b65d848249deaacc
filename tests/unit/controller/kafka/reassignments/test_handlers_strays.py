"""Replicas that a reassignment removes while their brokers are away are remembered, and stopped when these return."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from unittest import mock

import pytest

from brokers.wire.errors import Error
from controller.kafka.path.controller import Controller
from controller.kafka.path.events import EventKind
from controller.kafka.reassignments import reassignment
from controller.kafka.reassignments.reassignment import STOPPED_S_MAX
from controller.kafka.reassignments.strays import AGAIN_S, FORGOTTEN_MS_MIN, NOT_FORGOTTEN, judged
from controller.kafka.reassignments.topic_rewrites import NOT_REMEMBERED, finish_remembering
from metadata_store import paths
from metadata_store.codecs.topic import encode_topic
from metadata_store.errors import NotConnected
from metadata_store.nodes.stray_nodes import PARENT
from state_machines.decisions.reassignment import is_settled
from state_machines.decisions.strays import Fate
from state_machines.model.cluster import Cluster
from state_machines.model.types import Assignment, TopicPartition
from tests.kit.deadlines import eventually
from tests.kit.kafka.cluster import id_of
from tests.kit.kafka.parts import LEADER_AND_ISR, STOP_REPLICA
from tests.kit.kafka.reassignments import (
    alter,
    caught_up,
    join,
    moved_while_away,
    next_term,
    propagated,
    remembered,
    stops,
    written,
)
from tests.kit.kafka.world import KafkaWorld, in_world

T = ("t", 0)


async def returned(w: KafkaWorld) -> None:
    await w.boot(1)
    await propagated(w)


async def added_and_away(w: KafkaWorld, *names: str) -> None:
    """Adds broker 3 to topics, of which it is away when that is taken back: they end together."""
    for name in names:
        await w.topic(name, (1, 2), leaders=True)
    await w.begin_term()
    await propagated(w)
    await alter(w, {(name, 0): (1, 3) for name in names})
    await propagated(w)
    w.die(3)
    await w.settle()


# -- the memory


@in_world(1, 2, 3)
async def test_the_multi_that_drops_a_replica_remembers_it(w: KafkaWorld) -> None:
    await moved_while_away(w)
    [content] = remembered(w).values()
    czxid = w.term.cluster.topics[0].czxid
    assert list(remembered(w)) == ["1-t"]
    assert (content["version"], content["topic_id"], content["czxid"]) == (1, id_of("t").hex(), czxid)
    assert list(content["partitions"]) == ["0"]
    last = [ops for ops in w.active.script.writes if paths.topic("t") in ops][-1]
    assert last[1:] == [f"{PARENT}/1-t", paths.topic("t")], "one multi"


@in_world(1, 2, 3)
async def test_nothing_is_remembered_of_replicas_whose_brokers_acknowledged(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2), leaders=True)
    await w.begin_term()
    await propagated(w)
    await alter(w, {T: (2, 3)})
    await caught_up(w)
    assert written(w, "t") == Assignment((2, 3))
    assert w.wires.deleted(1) == [T]
    assert remembered(w) == {}
    assert w.node(PARENT) is None
    assert w.term.controller.reassignment_queue.acknowledged == set()


@in_world(1, 2, 3)
async def test_a_replica_that_its_broker_refused_to_delete_is_remembered(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2), leaders=True)
    await w.begin_term()
    await propagated(w)
    w.wires.refused = {1: {T: Error.KAFKA_STORAGE_ERROR}}
    await alter(w, {T: (2, 3)})
    await caught_up(w)
    assert list(remembered(w)) == ["1-t"]


@in_world(1, 2, 3)
async def test_replicas_that_a_cancel_drops_are_remembered_as_those_of_a_move(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2), leaders=True)
    await w.begin_term()
    await propagated(w)
    await alter(w, {T: (1, 3)})
    await propagated(w)
    w.die(3)
    await w.settle()
    await alter(w, {T: None})
    await propagated(w)
    assert written(w, "t") == Assignment((1, 2))
    assert list(remembered(w)) == ["3-t"]
    w.forget()
    await w.boot(3)
    await propagated(w)
    assert w.wires.deleted(3) == [T]
    assert remembered(w) == {}


@in_world(1, 2, 3, 4)
async def test_a_replica_that_came_back_before_it_was_removed_again_is_not_taken_for_deleted(w: KafkaWorld) -> None:
    await w.topic("t", (1, 4, 2), leaders=True)
    await w.begin_term()
    await propagated(w)
    w.wires.silent.add(4)  # the final rewrite waits for it
    await alter(w, {T: (2, 3)})
    await w.settle()
    await eventually(lambda: bool(w.wires.partitions(3, LEADER_AND_ISR)))
    await join(w)
    await eventually(lambda: w.wires.deleted(1) == [T])
    await alter(w, {T: (1, 2, 3)})  # broker 1 has a log again
    await w.settle()
    w.die(1)
    await w.settle()
    await alter(w, {T: (2, 3)})
    await w.settle()
    w.wires.respond(4)
    await caught_up(w)
    assert written(w, "t") == Assignment((2, 3))
    assert list(remembered(w)) == ["1-t"]


@in_world(1, 2, 3)
async def test_a_row_that_becomes_due_while_memories_are_written_gets_its_own(
    w: KafkaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "tu":
        await w.topic(name, (1, 2), leaders=True)
    await w.begin_term()
    await propagated(w)
    w.die(1)
    await w.settle()
    late, written_first = w.term.cluster.find("u", 0), list[int]()
    assert late is not None

    async def meanwhile(c: Controller, rows: Collection[int]) -> set[int]:
        found = await finish_remembering(c, rows)
        if not written_first:
            written_first.extend(rows)
            c.reassignment_queue.stopped.add(late)
            c.queue.signal(EventKind.FINISH_REASSIGNMENTS)
        return found

    def settled(cluster: Cluster, i: int) -> bool:
        return (i != late or bool(written_first)) and is_settled(cluster, i)

    monkeypatch.setattr(reassignment, "finish_remembering", meanwhile)
    monkeypatch.setattr(
        reassignment, "is_settled", lambda c, i: (i != late or bool(written_first)) and is_settled(c, i)
    )
    for name in "ut":
        await alter(w, {(name, 0): (2, 3)})
        await caught_up(w)
    await propagated(w)
    assert written_first == [w.term.cluster.find("t", 0)]
    assert written(w, "t") == written(w, "u") == Assignment((2, 3))
    assert list(remembered(w)) == ["1-t", "1-u"]


@in_world(1, 2, 3)
async def test_many_topics_are_few_multis(w: KafkaWorld) -> None:
    names = [f"t{number:03}" for number in range(120)]
    await added_and_away(w, *names)
    w.forget()
    await alter(w, {(name, 0): None for name in names})
    await propagated(w)
    assert list(remembered(w)) == [f"3-{name}" for name in names]
    written_ = [ops for ops in w.active.script.writes if any(path.startswith(f"{PARENT}/") for path in ops)]
    assert [len(ops) for ops in written_] == [1 + 2 * 50, 1 + 2 * 50, 1 + 2 * 20]
    w.forget()
    await w.boot(3)
    await propagated(w)
    assert sorted(w.wires.deleted(3)) == [(name, 0) for name in names]
    assert len(w.wires.requests(3, STOP_REPLICA)) == 1
    assert remembered(w) == {}
    written_ = [ops for ops in w.active.script.writes if any(path.startswith(f"{PARENT}/") for path in ops)]
    assert [len(ops) for ops in written_] == [1 + 100, 1 + 20]


@in_world(1, 2, 3, 4)
async def test_two_partitions_and_a_second_broker_are_added_to_what_is_remembered(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2), (1, 2), leaders=True)
    await w.begin_term()
    await propagated(w)
    w.die(1)
    await w.settle()
    await alter(w, {T: (2, 3)})
    await caught_up(w)
    await alter(w, {("t", 1): (2, 3)})
    await caught_up(w)
    assert list(remembered(w)["1-t"]["partitions"]) == ["0", "1"]
    w.die(3)
    await w.settle()
    await alter(w, {T: (2, 4)})
    await caught_up(w)
    assert list(remembered(w)) == ["1-t", "3-t"]


# -- memories that cannot be written never hold a reassignment up


@in_world(1, 2, 3)
async def test_a_memory_of_a_newer_daemon_is_left_as_it_is(w: KafkaWorld) -> None:
    await w.operator.create("/regent", b"")
    await w.operator.create(PARENT, b"")
    newer = b'{"version":2,"partitions":{}}'
    await w.operator.create(f"{PARENT}/1-t", newer)
    await moved_while_away(w)
    node = w.node(f"{PARENT}/1-t")
    assert node is not None
    assert node.data == newer
    assert w.counters.failures[NOT_REMEMBERED] == 1
    assert any(path == f"{PARENT}/1-t" for path in w.counters.malformed)


@in_world(1, 2, 3)
async def test_a_memory_that_cannot_be_written_takes_no_other_along(w: KafkaWorld) -> None:
    await w.operator.create("/regent", b"")
    await w.operator.create(PARENT, b"")
    await w.operator.create(f"{PARENT}/3-s", b'{"version":2,"partitions":{}}')
    await added_and_away(w, "r", "s", "t")
    await alter(w, {(name, 0): None for name in "rst"})
    await propagated(w)
    assert all(w.node(f"{PARENT}/3-{name}") is not None for name in ("r", "t"))
    assert w.counters.failures[NOT_REMEMBERED] == 1
    assert not any(written(w, name, 0).moving for name in "rst")


@in_world(1, 2, 3)
async def test_a_parent_that_cannot_be_created_holds_up_no_reassignment(w: KafkaWorld) -> None:
    await added_and_away(w, "t")
    w.restrict("/regent")
    await alter(w, {T: None})
    await propagated(w)
    assert w.counters.failures[NOT_REMEMBERED] == 1
    assert not written(w, "t", 0).moving


@in_world(1, 2, 3)
async def test_memories_that_cannot_be_read_end_no_term_and_hold_up_no_reassignment(w: KafkaWorld) -> None:
    await w.operator.create("/regent", b"")
    await w.operator.create(PARENT, b"")
    w.restrict(PARENT, 0)
    await moved_while_away(w)
    assert not w.term.gate.ended
    assert dict(w.counters.failures) == {NOT_REMEMBERED: 1}
    assert PARENT in w.counters.malformed


@in_world(1, 2, 3)
async def test_a_memory_without_permission_is_counted_and_blamed_on_no_topic(w: KafkaWorld) -> None:
    await w.operator.create("/regent", b"")
    await w.operator.create(PARENT, b"")
    w.restrict(PARENT)
    await moved_while_away(w)
    assert remembered(w) == {}
    assert dict(w.counters.failures) == {NOT_REMEMBERED: 1}


@in_world(1, 2, 3)
async def test_the_number_of_memories_is_bounded(w: KafkaWorld) -> None:
    with mock.patch("controller.kafka.reassignments.strays.ENTRIES_MAX", 1):
        await moved_while_away(w, "s", "t")
    assert list(remembered(w)) == ["1-s"], "the first that was finished"
    assert w.counters.failures[NOT_REMEMBERED] == 1


@in_world(1, 2, 3)
async def test_another_writer_of_a_memory_is_read_and_added_to(w: KafkaWorld) -> None:
    """A former controller may have written the znode after this term read it."""

    async def first() -> None:
        await w.operator.create(f"{PARENT}/1-t", b'{"version":1,"partitions":{"7":9999999999999},"czxid":1}')

    await w.topic("t", (1, 2), leaders=True)
    seat = await w.seat()
    seat.script.at(f"{PARENT}/1-t", first)
    await seat.begin()
    await propagated(w)
    w.die(1)
    await w.settle()
    await alter(w, {T: (2, 3)})
    await caught_up(w)
    assert written(w, "t") == Assignment((2, 3))
    content = remembered(w)["1-t"]
    assert (sorted(content["partitions"]), content["czxid"]) == (["0", "7"], 0), "two incarnations"


# -- the return


@in_world(1, 2, 3)
async def test_a_returned_broker_is_sent_the_removal_and_the_memory_goes(w: KafkaWorld) -> None:
    await moved_while_away(w)
    assert stops(w, 1) == []
    await returned(w)
    epoch = w.states[T].leader_epoch
    assert stops(w, 1) == [(T, epoch, True)]
    assert remembered(w) == {}


@in_world(1, 2, 3)
async def test_the_memory_outlives_failovers(w: KafkaWorld) -> None:
    await moved_while_away(w)
    await next_term(w)
    await next_term(w)
    assert list(remembered(w)) == ["1-t"]
    w.wires.frames.clear()
    await returned(w)
    assert w.wires.deleted(1) == [T]
    assert remembered(w) == {}


@in_world(1, 2, 3)
async def test_a_term_that_begins_with_the_broker_live_stops_its_replica(w: KafkaWorld) -> None:
    """The broker returned under Kafka's controller, which knows nothing of the replica."""
    await moved_while_away(w)
    await w.active.crash()
    await w.boot(1)
    w.wires.frames.clear()
    await w.begin_term()
    await propagated(w)
    assert w.wires.deleted(1) == [T]
    assert remembered(w) == {}


@in_world(1, 2, 3)
async def test_a_registered_broker_that_does_not_respond_is_stopped_when_it_does(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2), leaders=True)
    await w.begin_term()
    await propagated(w)
    w.wires.silent = {1}
    await alter(w, {T: (2, 3)})
    await w.settle()
    w.forget()
    await caught_up_without(w)
    await asyncio.sleep(STOPPED_S_MAX + 1)
    await w.settle()
    assert written(w, "t") == Assignment((2, 3))
    assert list(remembered(w)) == ["1-t"]
    w.wires.respond(1)
    await propagated(w)
    assert remembered(w) == {}
    assert set(w.wires.deleted(1)) == {T}


async def caught_up_without(w: KafkaWorld) -> None:
    """The leader takes broker 3 into the ISR; broker 1 responds to no StopReplica."""
    state = w.states[T]
    await w.alter_partition(state.leader, w.proposal(*T, (*state.isr, 3)))
    await w.settle()


# -- what became of the topic


@in_world(1, 2, 3)
async def test_the_log_of_a_topic_that_is_gone_is_deleted_by_name(w: KafkaWorld) -> None:
    await moved_while_away(w)
    await w.delete_topics("t")
    await propagated(w)
    assert w.node(paths.topic("t")) is None
    await next_term(w)
    w.wires.frames.clear()
    await returned(w)
    assert stops(w, 1) == [(T, -1, True)], "the model has no row"
    assert remembered(w) == {}


@pytest.mark.parametrize(("replicas", "deleted"), [((2, 3), [(T, -1, True)]), ((1, 2), [])])
@in_world(1, 2, 3)
async def test_the_log_of_a_former_topic_goes_unless_the_new_one_is_there(
    w: KafkaWorld, replicas: tuple[int, ...], deleted: list[object]
) -> None:
    await moved_while_away(w)
    await w.delete_topics("t")
    await propagated(w)
    await w.topic("t", replicas, leaders=True, topic_id=b"another".rjust(16))
    await next_term(w)
    w.wires.frames.clear()
    await returned(w)
    assert stops(w, 1) == deleted
    assert remembered(w) == {}


@in_world(1, 2, 3)
async def test_a_replica_that_is_assigned_again_keeps_its_log(w: KafkaWorld) -> None:
    await moved_while_away(w)
    await w.operator.create(
        paths.REASSIGN_PARTITIONS, b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'
    )
    await w.settle()
    assert 1 in written(w, "t").replicas
    w.wires.frames.clear()
    await w.boot(1)
    await caught_up(w)
    assert w.wires.deleted(1) == []
    assert written(w, "t") == Assignment((1, 2))
    assert remembered(w) == {"3-t": mock.ANY} or remembered(w) == {}
    assert "1-t" not in remembered(w)


@in_world(1, 2, 3)
async def test_nothing_is_deleted_of_a_topic_that_is_being_deleted_until_it_is_gone(w: KafkaWorld) -> None:
    await moved_while_away(w)
    w.wires.silent = {2}
    await w.mark("t")
    await w.settle()
    w.wires.frames.clear()
    await w.boot(1)
    await w.settle()
    assert stops(w, 1) == []
    w.wires.respond(2)
    await propagated(w)
    assert w.node(paths.topic("t")) is None
    await asyncio.sleep(AGAIN_S + 1)
    await propagated(w)
    assert stops(w, 1) == [(T, -1, True)]
    assert remembered(w) == {}


@in_world(1, 2, 3)
async def test_a_topic_that_cannot_be_read_keeps_its_logs(w: KafkaWorld) -> None:
    await moved_while_away(w)
    await w.active.crash()
    node = w.node(paths.topic("t"))
    assert node is not None
    await w.operator.set(paths.topic("t"), b"{", -1)
    await w.boot(1)
    await w.begin_term()
    await propagated(w)
    w.wires.frames.clear()
    await asyncio.sleep(AGAIN_S + 1)
    await propagated(w)
    assert stops(w, 1) == []
    await w.operator.set(paths.topic("t"), node.data, -1)
    await propagated(w)
    await asyncio.sleep(AGAIN_S + 1)
    await propagated(w)
    assert w.wires.deleted(1) == [T]
    assert remembered(w) == {}


# -- refusals and conflicts


@in_world(1, 2, 3)
async def test_a_refused_log_rests_until_a_while_has_passed(w: KafkaWorld) -> None:
    await moved_while_away(w)
    w.wires.refused = {1: {T: Error.KAFKA_STORAGE_ERROR}}
    await returned(w)
    await propagated(w)
    assert w.wires.deleted(1) == [T], "once"
    assert w.counters.answers["STOP_REPLICA partition: KAFKA_STORAGE_ERROR (56)"] == 1
    assert list(remembered(w)) == ["1-t"]
    w.wires.refused = {}
    await asyncio.sleep(AGAIN_S + 1)
    await propagated(w)
    assert w.wires.deleted(1) == [T, T]
    assert remembered(w) == {}


@in_world(1, 2, 3)
async def test_a_refused_log_is_tried_again_at_once_when_its_broker_restarts(w: KafkaWorld) -> None:
    await moved_while_away(w)
    w.wires.refused = {1: {T: Error.KAFKA_STORAGE_ERROR}}
    await returned(w)
    w.wires.refused = {}
    await w.bounce(1)
    await propagated(w)
    assert remembered(w) == {}


@in_world(1, 2, 3)
async def test_a_log_of_a_higher_leader_epoch_is_named_once_and_tried_again(
    w: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await moved_while_away(w)
    w.wires.refused = {1: {T: Error.FENCED_LEADER_EPOCH}}
    await returned(w)
    await propagated(w)
    for _ in range(3):
        await asyncio.sleep(AGAIN_S + 1)
        await propagated(w)
    assert w.wires.deleted(1) == [T] * 4, "its epoch may have grown, or its topic be gone"
    said = [text for one in caplog.records if "t-0" in (text := one.getMessage()) and "broker 1" in text]
    assert [text.startswith("broker 1 missed the removal of 1 replica") for text in said].count(True) == 1
    [line] = [text for text in said if "higher leader epoch" in text]
    assert line.startswith("broker 1 keeps the logs of 1 removed replica, the first is t-0: ")
    assert line.endswith("restart that broker to have them deleted")
    w.wires.refused = {}
    await asyncio.sleep(AGAIN_S + 1)
    await propagated(w)
    assert remembered(w) == {}
    assert not w.term.controller.strays.fenced


@in_world(1, 2, 3)
async def test_a_memory_that_changed_meanwhile_is_read_again_before_it_goes(w: KafkaWorld) -> None:
    await moved_while_away(w)

    async def changes() -> None:
        content = remembered(w)["1-t"]
        content["partitions"]["9"] = 5
        await w.operator.set(f"{PARENT}/1-t", json.dumps(content).encode(), -1)

    w.active.script.at(f"{PARENT}/1-t", changes)
    await returned(w)
    await asyncio.sleep(AGAIN_S + 1)
    await propagated(w)
    assert set(w.wires.deleted(1)) == {T, ("t", 9)}
    assert remembered(w) == {}


@in_world(1, 2, 3)
async def test_a_memory_that_cannot_be_deleted_is_counted_and_tried_again(w: KafkaWorld) -> None:
    await moved_while_away(w)
    w.restrict(PARENT)
    await returned(w)
    assert list(remembered(w)) == ["1-t"]
    assert w.counters.failures[NOT_FORGOTTEN] == 1
    assert not w.term.gate.ended


@in_world(1, 2, 3)
async def test_no_log_is_deleted_before_the_claim_is_confirmed(w: KafkaWorld) -> None:
    await moved_while_away(w)
    confirm = mock.AsyncMock(side_effect=[NotConnected("the connection is lost"), None])
    with mock.patch("controller.kafka.reassignments.strays.confirm", confirm):
        await returned(w)
    assert confirm.await_count == 2
    assert w.wires.deleted(1) == [T]
    assert remembered(w) == {}


@in_world(1, 2, 3)
async def test_a_topic_that_is_repaired_while_the_claim_is_confirmed_keeps_its_logs(w: KafkaWorld) -> None:
    await moved_while_away(w)
    await w.active.crash()
    await w.operator.set(paths.topic("t"), b"{", -1)
    await w.begin_term()
    assert paths.topic("t") in w.counters.malformed

    async def repaired(_zk: object, _fence: object) -> None:
        """The assignment names broker 1 again; the term has yet to read it."""
        await w.operator.set(paths.topic("t"), encode_topic({0: Assignment((2, 3, 1))}, id_of("t")), -1)
        await eventually(lambda: paths.topic("t") not in w.counters.malformed)
        fates.append(judged(w.term.controller, 1, TopicPartition(*T)).fate)

    fates: list[Fate] = []
    with mock.patch("controller.kafka.reassignments.strays.confirm", repaired):
        await returned(w)
    assert fates == [Fate.WAITS]
    assert w.wires.deleted(1) == []
    assert w.term.cluster.topic("t") is not None


@in_world(1, 2, 3)
async def test_what_is_on_a_broker_that_never_returns_is_forgotten_in_the_end(w: KafkaWorld) -> None:
    await moved_while_away(w)
    content = remembered(w)["1-t"]
    content["partitions"]["0"] -= FORGOTTEN_MS_MIN - 100_000
    await w.operator.set(f"{PARENT}/1-t", json.dumps(content).encode(), -1)
    await next_term(w)
    assert list(remembered(w)) == ["1-t"]
    await asyncio.sleep(101.0)
    await next_term(w)
    assert remembered(w) == {}
