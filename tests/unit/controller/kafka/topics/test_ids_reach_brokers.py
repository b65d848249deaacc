"""What brokers and ZooKeeper know apart: ids that are given late, and partitions that brokers alone show."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace

from controller.kafka.path.events import EventKind
from controller.kafka.topics import ghosts
from controller.kafka.topics.ghosts import unknown_to
from metadata_store import paths
from metadata_store.codecs.topic import encode_topic
from metadata_store.port import ANY_VERSION
from state_machines.model.cluster import Cluster
from state_machines.model.topic_facts import TopicIdRead
from state_machines.model.types import LEADER_DURING_DELETE, Assignment, PartitionState, TopicAssignment
from testing.znodes import remove_by_hand
from tests.kit.deadlines import eventually
from tests.kit.kafka import channels
from tests.kit.kafka.cluster import id_of
from tests.kit.kafka.parts import LEADER_AND_ISR, UPDATE_METADATA
from tests.kit.kafka.reassignments import alter, caught_up
from tests.kit.kafka.role import Kafka, kafka
from tests.kit.kafka.world import KafkaWorld, in_world
from tests.unit.controller.kafka.reassignments.test_topic_rewritten import OTHER_ID, ids_sent, lost, rewrite
from tests.unit.controller.kafka.topics.test_lost_ids import Silence, upgraded

SLOW = pytest.mark.parametrize("slow", [LEADER_AND_ISR, UPDATE_METADATA])
TURN = 100


def last_id(w: KafkaWorld, broker: int, api: int, name: str) -> bytes | None:
    """The id in the last request that names the topic; raises where none does."""
    found = [t for request in w.wires.requests(broker, api) for t in request.topic_states if t.topic_name == name]
    return found[-1].topic_id.bytes if found[-1].topic_id else None


async def led_without_an_id(w: KafkaWorld) -> None:
    """Topic t, whose id no broker knows; ``other`` has its own."""
    await lost(w)
    w.knows = {broker: {"other": id_of("other")} for broker in w.brokers}
    await w.serve()


async def thaws(w: KafkaWorld, *brokers: int) -> None:
    await asyncio.sleep(3.0)
    await w.settle()
    w.wires.respond(*brokers)
    await w.propagated()


@SLOW
@in_world()
async def test_ids_that_are_made_up_while_a_first_request_is_under_way_reach_its_broker(
    w: KafkaWorld, slow: int
) -> None:
    await upgraded(w, "a")
    w.wires.silent_to, w.wires.silent = slow, {2}
    await w.begin_term()
    await thaws(w, 2)
    topic_id = w.assignment("a").topic_id
    assert topic_id is not None
    for broker in (1, 2, 3):
        assert last_id(w, broker, UPDATE_METADATA, "a") == topic_id
        assert last_id(w, broker, LEADER_AND_ISR, "a") == topic_id


@SLOW
@in_world()
async def test_a_broker_that_comes_back_is_sent_a_topic_that_stays_without_an_id(w: KafkaWorld, slow: int) -> None:
    await w.topic("t", (2, 3), leaders=True)
    await rewrite(w, "t", {0: (2, 3)})
    await w.topic("other", (3, 1), leaders=True)
    w.knows = {broker: {"other": id_of("other")} for broker in (1, 2, 3)}
    await w.serve()
    w.wires.frames.clear()
    w.wires.silent_to, w.wires.silent = slow, {1}
    await w.bounce(1)
    await thaws(w, 1)
    assert last_id(w, 1, UPDATE_METADATA, "t") is None
    assert last_id(w, 1, UPDATE_METADATA, "other") == id_of("other")


def without_ids(w: channels.ChannelsWorld, *names: str) -> list[int]:
    """Topics with partitions for two turns, as they were loaded from znodes without ids; their indexes."""
    for name in names:
        w.add_topic(name, [(1, 2)] * TURN)
        topic: Any = w.cluster.topic(name)
        w.cluster.topic_ids.pop(topic.topic_id, None)
        w.cluster.topics[topic.index] = replace(topic, topic_id=None)
    return [topic.index for topic in w.cluster.topics]


async def test_turns_that_were_encoded_before_ids_were_given_are_encoded_again() -> None:
    """Broker 2 is slow with the first snapshot, whose last turns wait for it; broker 1 with the second one."""
    async with channels.world(1, 2, snapshot_turn_partitions=TURN) as w:
        names = ("t0", "t1", "t2", "t3")
        topics = without_ids(w, *names)
        w.channels.withhold(topics)
        w.channels.permit_metadata([1, 2])
        w.brokers[2].hold()
        w.channels.snapshot()
        await eventually(lambda: w.channels.lag()[1].partitions == 0)
        for name in names:
            w.cluster.observe_topic_id(name, id_of(name))
        w.channels.hand_out(topics)
        w.brokers[1].hold()
        w.channels.snapshot(None)
        w.brokers[2].let_go.set()
        await eventually(lambda: w.channels.lag()[2].partitions == 0)
        w.brokers[1].let_go.set()
        await channels.settled(w)
        for broker in w.brokers.values():
            for api in (LEADER_AND_ISR, UPDATE_METADATA):
                last = {t.topic_name: t.topic_id for heard in broker.of(api) for t in heard.entity.topic_states}
                assert {name: found and found.bytes for name, found in last.items()} == {n: id_of(n) for n in names}


async def test_a_body_that_was_encoded_before_an_id_was_given_serves_no_other_broker() -> None:
    async with channels.world(1, 2) as w:
        without_ids(w, "t")
        w.channels._propagation.metadata_changed([0])
        batcher, cut = w.channels._shared.batcher, w.channels._propagation.feed.number
        before, _ = batcher.update_metadata(0, cut)
        w.cluster.observe_topic_id("t", OTHER_ID)
        after, _ = batcher.update_metadata(0, cut)
        assert before is not None
        assert after is not None
        assert [OTHER_ID in body for body in (before, after)] == [False, True]


@in_world(1, 2, 3, 4, before=led_without_an_id)
async def test_an_id_that_a_conflict_showed_reaches_all_brokers_and_those_that_register_later(w: KafkaWorld) -> None:
    """The operator writes it just before a reassignment rewrites the znode."""
    store = w.term.controller.store
    commit = store.commit_topics

    async def after_the_operator(*args: Any, **how: Any) -> Any:
        store.commit_topics = commit  # type: ignore[method-assign]
        await rewrite(w, "t", {0: (1, 2, 3)}, OTHER_ID)
        return await commit(*args, **how)

    store.commit_topics = after_the_operator  # type: ignore[method-assign]
    assert not await alter(w, {("t", 0): (2, 3, 4)})
    await caught_up(w)
    assert w.assignment("t").topic_id == OTHER_ID
    assert not w.term.controller.lost_ids.topics
    for broker in (2, 3, 4):
        assert last_id(w, broker, UPDATE_METADATA, "t") == OTHER_ID
        assert last_id(w, broker, LEADER_AND_ISR, "t") == OTHER_ID
    w.wires.frames.clear()
    await w.bounce(1)
    await w.propagated()
    assert last_id(w, 1, UPDATE_METADATA, "t") == OTHER_ID


@in_world(1, 2, 3, 4, before=led_without_an_id)
async def test_an_id_written_while_a_deletion_waits_for_a_reassignment_lets_both_end(w: KafkaWorld) -> None:
    """Brokers name topics by their ids when they change an ISR: without it the new replica would never be in sync."""
    assert not await alter(w, {("t", 0): (2, 3, 4)})
    await w.propagated()
    await w.operator.create(f"{paths.DELETE_TOPICS}/t", b"")
    await w.propagated()
    w.wires.frames.clear()
    held = w.assignment("t")
    data = encode_topic(held.partitions, OTHER_ID, held.unknown)
    await w.operator.set(paths.topic("t"), data, held.version)
    await w.propagated()
    assert last_id(w, 4, LEADER_AND_ISR, "t") == OTHER_ID


@in_world(1, 2, 3, 4)
async def test_all_partitions_of_a_topic_whose_deletion_waits_are_sent_with_the_id_that_a_broker_knows(
    w: KafkaWorld,
) -> None:
    await w.topic("t", (1, 2), (2, 3), leaders=True)
    await rewrite(w, "t", {0: (1, 2), 1: (2, 3)})
    w.knows = {broker: {"t": id_of("t")} for broker in (1, 2)}
    held = w.assignment("t")
    moved = {**held.partitions, 0: Assignment((4, 1, 2), adding=(4,), removing=(1, 2))}
    await w.operator.set(paths.topic("t"), encode_topic(moved, None), held.version)
    await w.operator.create(f"{paths.DELETE_TOPICS}/t", b"")
    await w.serve()
    assert w.assignment("t").topic_id == id_of("t")
    for broker in (1, 2, 3, 4):
        assert {("t", 0), ("t", 1)} <= w.wires.last_sent(broker, UPDATE_METADATA).keys()
        assert last_id(w, broker, UPDATE_METADATA, "t") == id_of("t")


@in_world()
async def test_no_id_is_made_up_where_other_topics_got_theirs_back_between_two_terms(w: KafkaWorld) -> None:
    """The first term sent them all without ids, so that brokers say so, of those too that have one since."""
    names = [f"a{number:02}" for number in range(25)]
    for name in names:
        await w.topic(name, (1, 2, 3), leaders=True)
        await rewrite(w, name, {0: (1, 2, 3)})
    await w.topic("z", (3, 1), leaders=True)
    w.knows = {broker: {"z": id_of("z")} for broker in (1, 2, 3)}
    await w.serve()
    await w.active.crash()
    for name in names[:22]:
        await rewrite(w, name, {0: (1, 2, 3)}, id_of(name))
    w.knows = {broker: {**dict.fromkeys(names), "z": id_of("z")} for broker in (1, 2, 3)}
    await w.serve()
    assert [w.assignment(name).topic_id for name in names[22:]] == [None] * 3


@in_world()
async def test_a_frozen_broker_is_waited_for_to_the_end_of_the_last_try(w: KafkaWorld) -> None:
    await lost(w)
    w.knows = {broker: {"other": id_of("other")} for broker in (1, 2)}
    w.knows[3] = {"t": id_of("t")}
    Silence(w, 3)
    await w.begin_term()
    lost_ids = w.term.controller.lost_ids
    await eventually(lambda: not lost_ids.tries_left, 60.0)
    assert lost_ids.asking
    w.term.controller.queue.signal(EventKind.LOST_IDS)  # a busy queue, or a repeated event
    await asyncio.sleep(1.0)
    assert lost_ids.asking
    assert not ids_sent(w, "t", UPDATE_METADATA, (3,))
    await eventually(lambda: ids_sent(w, "t", UPDATE_METADATA, (3,)) == {None}, 60.0)


@in_world()
async def test_an_id_that_is_known_already_is_no_news(w: KafkaWorld) -> None:
    """A conflict shows it again: nothing is written or sent for it, and what brokers refused stays refused."""
    await w.topic("t", (1, 2), leaders=True)
    await w.serve()
    c, known = w.term.controller, w.assignment("t").topic_id
    c.cluster.observe_id_refused(2, [0])
    c.enter(TopicIdRead("t", known))
    assert not c.late
    assert c.cluster.ids_refused == {0: {(2, 0)}}
    c.enter(TopicIdRead("t", OTHER_ID))
    assert c.late == {0}


def shown(cluster: Kafka) -> set[tuple[str, int]]:
    """Partitions that any broker shows."""
    return {(n, p) for b in cluster.brokers.values() for n, topic in b.topics.items() for p in topic.partitions}


async def cut(cluster: Kafka, name: str, kept: int) -> None:
    """Leaves a topic the first partitions, as a deletion that was left half done, or a tool."""
    node = await cluster.operator.get(paths.topic(name))
    assert node is not None
    for partition in range(kept, 3):
        await cluster.operator.delete(paths.state(name, partition), ANY_VERSION)
        await cluster.operator.delete(paths.partition(name, partition), ANY_VERSION)
    assignments = {p: Assignment((1, 2, 3)) for p in range(kept)}
    await cluster.operator.set(paths.topic(name), encode_topic(assignments, bytes(15) + b"o"), ANY_VERSION)


async def test_a_new_term_ends_what_brokers_show_and_zookeeper_lacks(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        await cluster.topic("orders", (1, 2, 3), (1, 2, 3), (1, 2, 3))
        await cluster.topic("gone", (1, 2, 3))
        await cluster.take_over()
        async with cluster.daemon(queries=True) as daemon:
            await cluster.serving(daemon)
            await eventually(lambda: len(shown(cluster)) == 4)
        await remove_by_hand(cluster.operator, "gone")
        await cut(cluster, "orders", 1)
        async with cluster.daemon(queries=True) as daemon:
            await cluster.serving(daemon)
            await eventually(lambda: shown(cluster) == {("orders", 0)})
            ids = {b.topics["orders"].topic_id for b in cluster.brokers.values()}
            assert ids == {bytes(15) + b"o"}, "no broker drops the id of the topic that stays"


async def test_one_task_queries_brokers_however_often_they_register(monkeypatch: pytest.MonkeyPatch) -> None:
    due, queried = {1, 2}, list[list[int]]()

    async def query(c: object, dial: object, brokers: list[int]) -> dict[int, str]:
        queried.append(brokers)
        if len(queried) == 2:
            due.update((2, 3))
        return {2: "it is silent"} if 2 in brokers else {}

    monkeypatch.setattr(ghosts, "_query", query)
    monkeypatch.setattr(ghosts, "PAUSE_S", 0.0)
    c = mock.Mock(channels=mock.Mock(quiesced=mock.AsyncMock()))
    await ghosts.find_ghosts(c, mock.Mock(), due)
    again = [[2]] * (ghosts.TRIES_MAX - 1)
    assert queried == [[1, 2], [2], [2, 3], *again], "a broker that registered again has all its tries"
    assert due == set()


async def test_a_topic_that_cannot_be_understood_is_not_said_to_be_lacking(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with kafka(tmp_path) as cluster:
        await cluster.topic("orders", (1, 2, 3), (1, 2, 3), (1, 2, 3))
        await cluster.topic("odd", (1, 2, 3))
        await cluster.take_over()
        async with cluster.daemon(queries=True) as daemon:
            await cluster.serving(daemon)
            await eventually(lambda: len(shown(cluster)) == 4)
        await cluster.operator.set(paths.topic("odd"), b"{", ANY_VERSION)
        await cut(cluster, "orders", 1)
        async with cluster.daemon(queries=True) as daemon:
            await cluster.serving(daemon)
            await eventually(lambda: shown(cluster) == {("orders", 0), ("odd", 0)})
    assert "broker 1 shows 2 partitions that ZooKeeper lacks, the first is orders-1" in caplog.text


async def test_more_than_zookeeper_has_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ghosts, "MANY", 1)
    async with kafka(tmp_path) as cluster:
        await cluster.topic("orders", (1, 2, 3), (1, 2, 3), (1, 2, 3))
        await cluster.take_over()
        async with cluster.daemon(queries=True) as daemon:
            await cluster.serving(daemon)
            await eventually(lambda: len(shown(cluster)) == 3)
        await cut(cluster, "orders", 1)
        async with cluster.daemon(queries=True) as daemon:
            await cluster.serving(daemon)
            await eventually(lambda: "find out whether ZooKeeper was restored from an old copy" in caplog.text)
            assert len(shown(cluster)) == 3


def topic(name: str, *partitions: int) -> TopicAssignment:
    return TopicAssignment(name, name.encode().ljust(16), {p: Assignment((1, 2)) for p in partitions}, 0, 7)


def test_only_what_the_model_lacks_is_entered_as_removed() -> None:
    cluster = Cluster()
    cluster.observe_topic(topic("t", 0, 1))
    found = unknown_to(cluster, {"t": [0, 1, 2], "u": [0]})
    assert found == {"t": {2}, "u": {0}}
    rows = [i for name, numbers in found.items() for i in cluster.observe_ghosts(name, numbers)]
    assert [str(cluster.name(i)) for i in rows] == ["t-2", "u-0"]
    for i in rows:
        assert (cluster.rows[i].state, cluster.rows[i].leader) == (PartitionState.NON_EXISTENT, LEADER_DURING_DELETE)
        assert cluster.rows[i].is_removed
    assert (cluster.find("t", 2), cluster.topic("u"), cluster.present) == (None, None, 2)
    assert cluster.observe_ghosts("t", [1, 3]) == [4], "partition 1 is there by now"
    cluster.observe_topic(topic("u", 0))
    assert cluster.find("u", 0) == 5


async def three(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2), (2, 3), (3, 1), leaders=True)
    await w.serve()
    w.forget()


@in_world(before=three)
async def test_partitions_of_a_topic_that_vanished_do_not_show_in_the_next_one_of_its_name(w: KafkaWorld) -> None:
    await w.delete_topic("t")
    await w.propagated()
    await w.topic("t", (1, 2))
    await w.propagated()
    for broker in (1, 2, 3):
        last = w.wires.last_sent(broker, UPDATE_METADATA)
        assert [last["t", p] for p in range(3)] == [(1, 0), (LEADER_DURING_DELETE, 0), (LEADER_DURING_DELETE, 0)]
    w.agreed()
