"""Topic znodes that an older tool rewrote: ids, partitions and reassignments that it does not know are not lost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from brokers.outbound.delivery import BrokerResponse
from brokers.wire.errors import Error
from brokers.wire.versions import Api
from metadata_store import paths
from metadata_store.codecs.topic import topic_id_text
from metadata_store.port import ANY_VERSION
from state_machines.model.types import Assignment
from tests.kit.kafka.cluster import id_of
from tests.kit.kafka.parts import LEADER_AND_ISR, UPDATE_METADATA
from tests.kit.kafka.reassignments import alter, caught_up, propagated, written
from tests.kit.kafka.world import KafkaWorld, in_world

OTHER_ID = b"another topic id"


async def rewrite(
    w: KafkaWorld, name: str, replicas: Mapping[int, tuple[int, ...]], topic_id: bytes | None = None
) -> None:
    """As CMAK and tools before topic ids do it."""
    fields: dict[str, Any] = {"version": 1, "partitions": {str(p): list(found) for p, found in replicas.items()}}
    if topic_id is not None:
        fields["topic_id"] = topic_id_text(topic_id)
    await w.operator.set(paths.topic(name), json.dumps(fields).encode(), ANY_VERSION)


async def running(w: KafkaWorld, *replicas: tuple[int, ...]) -> None:
    await w.topic("t", *(replicas or ((1, 2, 3), (2, 3, 1))), leaders=True)
    await w.topic("other", (3, 1), leaders=True)
    await w.serve()
    w.wires.frames.clear()
    w.queried.clear()


def ids_sent(
    w: KafkaWorld, name: str = "t", api: int = LEADER_AND_ISR, brokers: Iterable[int] = (1, 2, 3)
) -> set[bytes | None]:
    """Every id that any of the brokers was told with LeaderAndIsr."""
    return {
        found.topic_id.bytes if found.topic_id else None
        for broker in brokers
        for request in w.wires.requests(broker, api)
        for found in request.topic_states
        if found.topic_name == name
    }


def metadata_ids(w: KafkaWorld, name: str = "t") -> set[bytes | None]:
    """Every id that any broker was told with UpdateMetadata."""
    return ids_sent(w, name, UPDATE_METADATA)


# -- while a term knows the topic


@pytest.mark.seed("S4-85")
@pytest.mark.parametrize("topic_id", [None, OTHER_ID])
@in_world(before=running)
async def test_a_topic_rewritten_without_its_id_keeps_it(
    w: KafkaWorld, topic_id: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    await rewrite(w, "t", {0: (1, 2, 3), 1: (2, 3, 1)}, topic_id)
    await w.propagated()
    assert w.assignment("t").topic_id == id_of("t")
    assert "without its topic id" in caplog.text
    w.die(1)
    await w.propagated()
    assert w.leaders()["t", 0] == (2, (2, 3))
    assert ids_sent(w) == {id_of("t")}
    assert w.queried == []
    await w.active.crash()
    await w.serve()
    assert ids_sent(w) == {id_of("t")}
    w.agreed()


@pytest.mark.seed("S4-85")
@in_world(before=running)
async def test_another_id_is_believed_where_brokers_refused_the_known_one(
    w: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka's controller gave a topic another id than its logs have (KAFKA-14190), and an operator mends it."""
    broker, row = w.term.cluster.brokers[2], w.term.cluster.find("t", 1)
    assert row is not None
    failed = ((row, int(Error.INCONSISTENT_TOPIC_ID)),)
    w.witness.receive(BrokerResponse(2, broker.epoch, Api.LEADER_AND_ISR, 0, failed, {row: False}))
    assert "regent explain TOPIC PARTITION has the safe way out" in caplog.text
    await rewrite(w, "t", {0: (1, 2, 3), 1: (2, 3, 1)}, OTHER_ID)
    await w.propagated()
    assert w.assignment("t").topic_id == OTHER_ID
    assert ids_sent(w) == {OTHER_ID}
    assert {w.states["t", p].leader_epoch for p in (0, 1)} == {4}, "brokers take no notice of an epoch they know"
    assert w.term.cluster.topic_by_id(id_of("t")) is None
    await rewrite(w, "t", {0: (1, 2, 3), 1: (2, 3, 1)}, id_of("t"))
    await w.propagated()
    assert w.assignment("t").topic_id == OTHER_ID, "nobody refused that"


@in_world(before=running)
async def test_an_id_is_in_doubt_until_brokers_have_deleted_the_logs_that_refused_it(w: KafkaWorld) -> None:
    row = w.term.cluster.find("t", 1)
    assert row is not None
    [topic] = [topic for topic in w.term.cluster.topics if topic.name == "t"]
    epoch, other = w.term.cluster.brokers[2].epoch, int(Error.KAFKA_STORAGE_ERROR)
    failed = ((row, int(Error.INCONSISTENT_TOPIC_ID)),)
    w.witness.receive(BrokerResponse(2, epoch, Api.LEADER_AND_ISR, 0, failed, {row: False}))
    for kept in (
        BrokerResponse(2, epoch, Api.STOP_REPLICA, 0, (), {row: False}),
        BrokerResponse(2, epoch, Api.STOP_REPLICA, 11, (), {row: True}),
        BrokerResponse(2, epoch, Api.STOP_REPLICA, 0, ((row, other),), {row: True}),
        BrokerResponse(3, epoch, Api.STOP_REPLICA, 0, (), {row: True}),
        BrokerResponse(2, epoch, Api.LEADER_AND_ISR, 0, (), {row: True}),
    ):
        w.witness.receive(kept)
        assert w.term.cluster.doubts_id(topic), kept
    w.witness.receive(BrokerResponse(2, epoch, Api.STOP_REPLICA, 0, (), {row: True}))
    assert not w.term.cluster.doubts_id(topic)


@in_world()
async def test_a_topic_that_was_never_propagated_takes_the_id_of_its_znode(w: KafkaWorld) -> None:
    """Kafka's controller writes a znode without partitions, and another id, where it cannot read a topic."""
    await w.topic("t", (1, 2), leaders=True)
    await rewrite(w, "t", {}, OTHER_ID)
    await w.begin_term()
    await rewrite(w, "t", {0: (1, 2)}, id_of("t"))
    await w.propagated()
    assert (w.assignment("t").topic_id, w.leaders()) == (id_of("t"), {("t", 0): (1, (1, 2))})
    assert ids_sent(w) == {id_of("t")}


@in_world()
async def test_below_ibp_2_8_a_known_id_is_kept_too(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2), leaders=True)
    await w.begin_term("2.7-IV1")
    await rewrite(w, "t", {0: (1, 2)})
    await w.propagated()
    assert w.assignment("t").topic_id == id_of("t")


@pytest.mark.seed("S4-79")
@in_world(before=running)
async def test_partitions_that_were_cut_are_written_back_and_added_ones_start(w: KafkaWorld) -> None:
    """Somebody adds a partition to what was there before others were added."""
    before = w.leaders()
    await rewrite(w, "t", {0: (1, 2, 3), 2: (3, 2)})
    await w.propagated()
    assert w.assignments()["t"] == {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 2)}
    assert w.leaders() == before | {("t", 2): (3, (3, 2))}
    w.agreed()


@pytest.mark.seed("S4-51", "S4-60")
@in_world(1, 2, 3)
async def test_a_reassignment_that_was_cut_goes_on_to_its_target(
    w: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    await running(w, (1, 2))
    await alter(w, {("t", 0): (2, 3)})
    await propagated(w)
    await rewrite(w, "t", {0: w.assignments()["t"][0]})
    await propagated(w)
    assert written(w, "t") == Assignment((2, 3, 1), (3,), (1,))
    assert "the reassignment of 1 partitions" in caplog.text
    await w.active.crash()
    await w.begin_term()
    await caught_up(w)
    assert (written(w, "t"), w.leaders()["t", 0]) == (Assignment((2, 3)), (2, (2, 3)))
    w.agreed()


@in_world(1, 2, 3)
async def test_a_reassignment_that_is_cut_right_before_its_last_rewrite_ends_at_its_target(w: KafkaWorld) -> None:
    await running(w, (1, 2))
    await alter(w, {("t", 0): (2, 3)})
    await propagated(w)
    w.active.script.at(paths.topic("t"), lambda: rewrite(w, "t", {0: (2, 3, 1)}))
    await caught_up(w)
    await propagated(w)
    assert (written(w, "t"), w.leaders()["t", 0]) == (Assignment((2, 3)), (2, (2, 3)))
    assert w.assignment("t").topic_id == id_of("t")
    w.agreed()


@in_world()
async def test_other_replicas_in_the_znode_are_left_alone(w: KafkaWorld) -> None:
    """What runs is only changed by a reassignment; whoever writes it there means the next controller."""
    await running(w, (1, 2))
    await rewrite(w, "t", {0: (3, 2)}, id_of("t"))
    await w.propagated()
    assert w.assignments()["t"] == {0: (3, 2)}
    assert w.leaders()["t", 0] == (1, (1, 2))


# -- when a term begins


async def lost(w: KafkaWorld, *names: str) -> None:
    """While no daemon ran; ``other`` has its id."""
    for name in names or ("t",):
        await w.topic(name, (1, 2, 3), leaders=True)
        await rewrite(w, name, {0: (1, 2, 3)})
    await w.topic("other", (3, 1), leaders=True)


@pytest.mark.seed("S4-85")
@pytest.mark.parametrize("knowing", [1, 3])
@in_world(before=lost)
async def test_a_new_term_has_the_id_from_the_broker_that_knows_it(w: KafkaWorld, knowing: int) -> None:
    w.knows = {broker: {"other": id_of("other")} for broker in (1, 2, 3)}
    w.knows[knowing]["t"] = id_of("t")
    await w.serve()
    assert w.assignment("t").topic_id == id_of("t")
    assert metadata_ids(w) == {id_of("t")}, "brokers would forget it"
    w.wires.frames.clear()
    w.die(1)
    await w.propagated()
    assert w.leaders()["t", 0] == (2, (2, 3))
    assert ids_sent(w) == {id_of("t")}
    w.agreed()


@pytest.mark.seed("S4-85")
@in_world(before=lost)
async def test_an_id_that_no_broker_knows_is_not_made_up(w: KafkaWorld, caplog: pytest.LogCaptureFixture) -> None:
    w.knows = {1: {}, 2: {"other": id_of("other"), "t": None}, 3: {}}
    await w.serve()
    assert w.assignment("t").topic_id is None
    assert ids_sent(w) == {None}
    assert "put topic_id from partition.metadata" in caplog.text
    w.die(1)
    await w.propagated()
    assert w.leaders()["t", 0] == (2, (2, 3)), "it is led all the same"
    await rewrite(w, "t", {0: (1, 2, 3)}, id_of("t"))
    await w.propagated()
    assert ids_sent(w) == {None, id_of("t")}
    assert w.states["t", 0].leader_epoch == 5, "a leader whose ISR change was refused hears a new epoch"
    assert (await w.alter_partition(2, w.proposal("t", 0, (2,)))).partitions[0].error == 0
    w.agreed()


@in_world(before=lost)
async def test_ids_that_contradict_each_other_are_not_believed(w: KafkaWorld) -> None:
    w.knows = {1: {"t": id_of("t")}, 2: {"t": OTHER_ID}}
    await w.serve()
    assert w.assignment("t").topic_id is None


@pytest.mark.parametrize("name", ["other", "another"])
@in_world()
async def test_an_id_that_two_topics_would_have_is_given_to_none(w: KafkaWorld, name: str) -> None:
    """``other`` has its own in its znode; that of ``another`` is lost, too."""
    await lost(w, "t", "another")
    w.knows = {1: {"t": id_of(name), "another": id_of("another")}}
    await w.serve()
    assert w.assignment("t").topic_id is None
    assert w.assignment("another").topic_id == (id_of("another") if name == "other" else None)


@in_world()
async def test_no_broker_is_queried_where_no_id_is_lost(w: KafkaWorld) -> None:
    await w.topic("fresh", (1, 2), topic_id=None)
    await running(w)
    await w.expand("t", (2, 3))
    await w.topic("new", (2, 3), topic_id=None)
    await w.propagated()
    assert w.queried == []
    assert None not in {w.assignment(name).topic_id for name in ("fresh", "new", "t")}


@pytest.mark.parametrize("fault", ["reconnect", "lose_replies", "lose_requests"])
@in_world(before=running)
async def test_a_topic_that_appears_without_its_id_is_not_forgotten_with_the_connection(
    w: KafkaWorld, fault: str
) -> None:
    w.knows = {2: {"late": id_of("late"), "t": id_of("t")}}
    session = w.active.zk.session_id
    w.active.script.at(paths.topic("late"), lambda: getattr(w.server, fault)(session))
    w.server.hold_watches(session)
    await w.topic("late", (1, 2), leaders=True)
    await rewrite(w, "late", {0: (1, 2)})
    w.server.release_watches(session)
    await w.propagated()
    assert w.assignment("late").topic_id == id_of("late")
    assert metadata_ids(w, "late") == {id_of("late")}
    w.agreed()
