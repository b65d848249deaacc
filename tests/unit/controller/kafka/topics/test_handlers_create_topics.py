"""CreateTopics in a term: written as a whole, started, told, answered; other writers, lost replies, failovers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from brokers.listener.controller_listener import NotController
from controller.kafka.access import Authorizer, principals
from controller.kafka.requests.calls import TOPICS_MAX, Calls
from metadata_store import paths
from metadata_store.errors import OutcomeUnknown
from state_machines.model.types import PartitionState
from tests.kit.deadlines import eventually
from tests.kit.kafka.calls import CALL, call, carried, create, created, grow, topic
from tests.kit.kafka.parts import LEADER_AND_ISR, UPDATE_METADATA
from tests.kit.kafka.world import KafkaWorld, in_world


def config(w: KafkaWorld, name: str) -> dict[str, str]:
    node = w.node(paths.topic_config(name))
    assert node is not None
    found: dict[str, str] = json.loads(node.data or b"")["config"]
    return found


def notified(w: KafkaWorld) -> list[str]:
    """Entities whose configurations brokers have to read again."""
    return [json.loads(data)["entity_path"] for data in w.notifications()]


@in_world()
async def test_a_topic_is_created_started_and_propagated_before_the_response(w: KafkaWorld) -> None:
    await w.begin_term()
    answer = await carried(w, create(topic("t", 6, 2, retention_ms="1000")))
    [made] = answer.topics
    found = w.assignment("t")
    assert (made.name, made.error_code, made.num_partitions, made.replication_factor) == ("t", 0, 6, 2)
    assert made.topic_id == found.topic_id
    assert (made.topic_config_error_code, made.configs) == (8, ()), "there is nobody to ask for all of them"
    assert [len(found.partitions[p].replicas) for p in range(6)] == [2] * 6
    assert config(w, "t") == {"retention.ms": "1000"}
    assert notified(w) == ["topics/t"]
    for p, assigned in found.partitions.items():
        assert w.leaders()["t", p] == (assigned.replicas[0], assigned.replicas)
        assert w.wires.last_sent(assigned.replicas[0], LEADER_AND_ISR)["t", p] == (assigned.replicas[0], 0)
    for broker in (1, 2, 3):
        assert len(w.wires.last_sent(broker, UPDATE_METADATA)) == 6
    w.agreed()


@in_world()
async def test_validation_changes_nothing_and_returns_what_would_be_created(w: KafkaWorld) -> None:
    await w.begin_term()
    zxid = w.server.tree.zxid
    answer = await carried(w, create(topic("t", 3, 2), topic("u", 1, 9), validate_only=True))
    assert [(t.name, t.error_code, t.num_partitions) for t in answer.topics] == [("t", 0, 3), ("u", 38, -1)]
    assert answer.topics[0].topic_id == bytes(16)
    assert w.server.tree.zxid == zxid


@in_world()
async def test_a_call_waits_a_second_for_a_silent_leader(w: KafkaWorld) -> None:
    await w.serve()
    w.wires.silent_to = None
    w.wires.silent.add(2)
    before_s = asyncio.get_running_loop().time()
    assert await created(w, create(topic("t", -1, -1, (2, 1), (1, 2)), timeout_ms=30_000)) == {"t": 0}
    assert asyncio.get_running_loop().time() - before_s < 2.5
    assert await created(w, grow("t", 3, (2, 1), timeout_ms=30_000)) == {"t": 0}
    assert asyncio.get_running_loop().time() - before_s < 5.0


@in_world()
async def test_a_topic_that_no_broker_shows_times_out(w: KafkaWorld) -> None:
    await w.serve()
    w.wires.silent_to = UPDATE_METADATA
    w.wires.silent.update((1, 2, 3))
    assert await created(w, create(topic("t", 1, 1), timeout_ms=2_000)) == {"t": 7}


@in_world()
async def test_a_topic_that_is_deleted_before_it_had_a_leader_is_not_called_created(w: KafkaWorld) -> None:
    await w.begin_term()
    w.die(3)
    await w.settle()
    response = asyncio.ensure_future(created(w, create(topic("t", -1, -1, (3,)), timeout_ms=1_000)))
    await eventually(lambda: w.node(paths.topic("t")) is not None)
    await w.mark("t")
    assert await response == {"t": 7}


@in_world()
async def test_a_topic_that_waits_for_its_deletion_is_marked_for_it(w: KafkaWorld) -> None:
    await w.topic("t", (1, 3), leaders=True)
    await w.begin_term()
    w.die(3)
    await w.mark("t")
    await w.propagated()
    [refused] = (await carried(w, create(topic("t", 1, 1)))).topics
    assert (refused.error_code, refused.error_message) == (36, "Topic 't' is marked for deletion.")
    [refused] = (await carried(w, create(topic("t", 0, 1)))).topics
    assert refused.error_code == 37, "judged before, as by Kafka, whose metadata has forgotten the topic"


@in_world()
async def test_a_topic_that_never_had_a_leader_exists_for_zookeeper_alone(w: KafkaWorld) -> None:
    """No broker shows it, so other reasons come first, as with Kafka's controller."""
    await w.begin_term()
    w.die(3)
    await w.settle()
    assert await created(w, create(topic("t", -1, -1, (3,)), timeout_ms=200)) == {"t": 7}
    assert await created(w, create(topic("t", 0, 1))) == {"t": 37}
    assert await created(w, create(topic("t", 1, 1))) == {"t": 36}


@in_world()
async def test_each_topic_of_a_request_is_on_its_own(w: KafkaWorld) -> None:
    await w.topic("there", (1,), leaders=True)
    await w.begin_term()
    asked = create(topic("t", 1, 1), topic("there", 1, 1), topic("no/slash"), topic("two", 1, 1), topic("two", 2, 1))
    answer = await carried(w, asked)
    assert [(t.name, int(t.error_code)) for t in answer.topics] == [
        ("t", 0), ("there", 36), ("no/slash", 17), ("two", 42), ("two", 42),
    ]  # fmt: skip
    assert set(w.assignments()) == {"there", "t"}


@in_world()
async def test_a_time_out_of_nothing_creates_and_does_not_wait(w: KafkaWorld) -> None:
    await w.begin_term()
    assert await created(w, create(topic("t", 1, 1), timeout_ms=0)) == {"t": 7}
    await w.propagated()
    assert ("t", 0) in w.leaders()


@in_world()
async def test_a_call_waits_for_a_live_replica(w: KafkaWorld) -> None:
    await w.begin_term()
    waiting = asyncio.create_task(created(w, create(topic("t", -1, -1, (9,)), topic("u", 1, 1))))
    await eventually(lambda: w.term.cluster.topic("t") is not None)
    assert not waiting.done()
    await w.boot(9)
    assert await waiting == {"t": 0, "u": 0}


@in_world()
async def test_a_smaller_topic_of_the_same_name_that_was_made_meanwhile_is_not_the_requested_one(w: KafkaWorld) -> None:
    await w.begin_term()
    wanted = create(topic("t", -1, -1, (1,), (9,)), timeout_ms=5_000)
    waiting = asyncio.create_task(created(w, wanted))
    await eventually(lambda: w.term.cluster.find("t", 1) is not None)
    await w.delete_topic("t")
    await eventually(lambda: w.term.cluster.topic("t") is None)
    await w.topic("t", (1,))
    await eventually(lambda: w.leaders().get(("t", 0)) is not None)
    assert await waiting == {"t": 7}


@pytest.mark.parametrize(("timeout_ms", "seconds"), [(0, 0.0), (1_700, 1.7), (299_000, 299.0), (600_000, 300.0)])
@in_world()
async def test_a_topic_without_a_live_replica_times_out_alone(w: KafkaWorld, timeout_ms: int, seconds: float) -> None:
    await w.begin_term()
    before_s = asyncio.get_running_loop().time()
    wanted = create(topic("t", -1, -1, (9,)), topic("u", 1, 1), timeout_ms=timeout_ms)
    assert await created(w, wanted) == {"t": 7, "u": 0 if timeout_ms else 7}
    assert asyncio.get_running_loop().time() - before_s == pytest.approx(seconds, abs=0.2)
    row = w.term.cluster.find("t", 0)
    assert row is not None
    assert w.term.cluster.rows[row].state is PartitionState.NEW


@in_world()
async def test_a_configuration_from_before_is_replaced_and_brokers_notice(w: KafkaWorld) -> None:
    await w.operator.create(paths.topic_config("t"), b'{"version":1,"config":{"retention.ms":"1"}}')
    await w.begin_term()
    assert await created(w, create(topic("t", 1, 1))) == {"t": 0}
    assert config(w, "t") == {}
    assert notified(w) == ["topics/t"]


@in_world()
async def test_below_ibp_2_8_there_is_no_topic_id(w: KafkaWorld) -> None:
    await w.begin_term("2.7-IV1")
    answer = await carried(w, create(topic("t", 1, 1)))
    assert (answer.topics[0].error_code, answer.topics[0].topic_id) == (0, bytes(16))
    assert w.assignment("t").topic_id is None


@in_world()
async def test_racks_of_brokers_count(w: KafkaWorld) -> None:
    await w.begin_term()
    for broker, rack in ((1, "a"), (2, "a"), (3, "b")):
        node = w.node(paths.broker(broker))
        assert node is not None
        data = json.loads(node.data or b"") | {"rack": rack}
        await w.operator.set(paths.broker(broker), json.dumps(data).encode(), -1)
    await w.propagated()
    assert await created(w, create(topic("t", 9, 2))) == {"t": 0}
    assert all(3 in a.replicas for a in w.assignment("t").partitions.values())


# -- many, and others


@in_world()
async def test_calls_that_wait_together_are_written_together(w: KafkaWorld) -> None:
    await w.serve()
    w.active.script.writes.clear()
    calls = [created(w, create(topic(f"t{n}", 2, 2)), call_id=b"%16d" % n) for n in range(50)]
    answers = await asyncio.gather(*calls)
    assert answers == [{f"t{n}": 0} for n in range(50)]
    assert len(w.active.script.writes) <= 4, "one multi for the topics, one for their states, or a few"


@in_world()
async def test_of_two_calls_for_one_name_the_first_creates(w: KafkaWorld) -> None:
    await w.begin_term()
    calls = [created(w, create(topic("t", n, 1)), call_id=b"%16d" % n) for n in (1, 2)]
    assert await asyncio.gather(*calls) == [{"t": 0}, {"t": 36}]
    assert len(w.assignment("t").partitions) == 1


@pytest.mark.parametrize(("ibp", "replicas"), [("3.9", (2,)), ("3.9", (3,)), ("2.7-IV1", (3,))])
@in_world()
async def test_a_topic_that_another_client_creates_first_exists_whatever_its_replicas(
    w: KafkaWorld, ibp: str, replicas: tuple[int, ...]
) -> None:
    await w.begin_term(ibp)
    topic_id = b"" if ibp == "3.9" else None
    w.active.script.at(paths.topic("t"), lambda: w.topic("t", replicas, topic_id=topic_id))
    assert await created(w, create(topic("t", -1, -1, (2,)), topic("u", 1, 1))) == {"t": 36, "u": 0}
    await w.propagated()
    assert w.leaders()["t", 0] == (replicas[0], replicas)


@in_world()
async def test_a_topic_that_does_not_fit_into_a_znode_is_refused_by_itself(w: KafkaWorld) -> None:
    await w.begin_term()
    many = topic("many", 90_000, 3)
    assert await created(w, create(many, topic("t", 1, 1))) == {"many": 37, "t": 0}
    assert set(w.assignments()) == {"t"}


def lost() -> None:
    raise OutcomeUnknown("the reply is lost")


@pytest.mark.parametrize("ibp", ["3.9", "2.7-IV1"])
@in_world()
async def test_a_write_whose_reply_is_lost_is_found_again(w: KafkaWorld, ibp: str) -> None:
    await w.begin_term(ibp)
    w.active.script.at(paths.topic("t"), lost, when="after")
    assert await created(w, create(topic("t", 3, 2))) == {"t": 0}
    await w.propagated()
    w.agreed()


@in_world()
async def test_a_repeated_call_succeeds_by_its_earlier_attempt(w: KafkaWorld) -> None:
    await w.begin_term()
    asked = create(topic("t", 3, 2), topic("u", 1, 1))
    first = await carried(w, asked)
    zxid = w.server.tree.zxid
    again = await carried(w, asked, attempt=1)
    assert again == first
    assert w.server.tree.zxid == zxid
    assert await created(w, asked, attempt=1, call_id=CALL[::-1]) == {"t": 36, "u": 36}
    assert await created(w, asked) == {"t": 36, "u": 36}


# -- the end of a term


@in_world()
async def test_a_call_that_waits_when_the_term_ends_is_refused(w: KafkaWorld) -> None:
    await w.begin_term()
    waiting = asyncio.create_task(carried(w, create(topic("t", -1, -1, (9,)))))
    await eventually(lambda: w.term.cluster.topic("t") is not None)
    w.term.gate.end("a test")
    with pytest.raises(NotController):
        await waiting


@in_world()
async def test_a_fenced_term_creates_nothing(w: KafkaWorld) -> None:
    await w.begin_term()
    w.active.script.at(paths.topic("t"), w.seize)
    with pytest.raises(NotController):
        await carried(w, create(topic("t", 1, 1)))
    assert w.node(paths.topic("t")) is None
    assert w.node(paths.topic_config("t")) is None


# -- who may


@in_world()
async def test_principals_that_are_not_named_may_change_nothing(w: KafkaWorld) -> None:
    await w.begin_term()
    calls = Calls(w.term.queue, Authorizer(principals("User:root; User:ops")))
    asked: Any = call(create(topic("t", 1, 1)))
    for principal, code in (("User:alice", 29), ("User:ops", 0)):
        named = type(asked)(**{f: getattr(asked, f) for f in asked.__struct_fields__} | {"principal": principal})
        answer: Any = await calls.carried(named)
        assert answer.topics[0].error_code == code


def test_super_users_are_named_one_by_one_as_in_kafka() -> None:
    assert not principals("User:*").may("User:alice")
    assert principals("User:alice; User:bob").may("User:bob")
    assert principals("").may("User:ANONYMOUS")
    assert not principals("").may("User:alice")
    assert not principals("alice").may("User:alice")


@in_world()
async def test_more_topics_than_the_loop_has_time_for_are_refused_at_once(w: KafkaWorld) -> None:
    await w.begin_term()
    many = [topic(f"t{number}", 1, 1) for number in range(TOPICS_MAX + 1)]
    found = await created(w, create(*many))
    assert set(found.values()) == {42}
    assert len(found) == TOPICS_MAX + 1
    assert w.node(paths.topic("t0")) is None
    assert await created(w, create(*many[:2])) == {"t0": 0, "t1": 0}
