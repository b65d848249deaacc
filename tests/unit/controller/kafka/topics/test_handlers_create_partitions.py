"""CreatePartitions in a term: topics grow by what is in ZooKeeper now, other writers and failovers included."""

from __future__ import annotations

import asyncio

import pytest

from brokers.listener.controller_listener import NotController
from metadata_store import paths
from metadata_store.codecs.topic import encode_topic
from metadata_store.errors import OutcomeUnknown
from state_machines.model.types import Assignment
from tests.kit.deadlines import eventually, in_virtual_time
from tests.kit.kafka.calls import carried, create, created, grow, topic
from tests.kit.kafka.parts import UPDATE_METADATA
from tests.kit.kafka.reassignments import alter
from tests.kit.kafka.world import KafkaWorld, in_world, world


async def running(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2), (2, 3), leaders=True)
    await w.serve()


@pytest.mark.kafka("AddPartitionsTest.testIncrementPartitions")
@in_world(before=running)
async def test_a_topic_grows_and_its_new_partitions_have_leaders(w: KafkaWorld) -> None:
    before = w.assignment("t")
    assert await created(w, grow("t", 5)) == {"t": 0}
    found = w.assignment("t")
    assert found.topic_id == before.topic_id
    assert sorted(found.partitions) == [0, 1, 2, 3, 4]
    assert {p: found.partitions[p] for p in (0, 1)} == before.partitions
    assert all(w.leaders()["t", p][0] == found.partitions[p].replicas[0] for p in (2, 3, 4))
    assert {p for _, p in w.wires.last_sent(1, UPDATE_METADATA)} >= {2, 3, 4}
    w.agreed()


@pytest.mark.kafka("TopicCommandTest.testAlter*")
@pytest.mark.kafka("AddPartitionsTest.testManualAssignmentOfReplicas")
@in_world(before=running)
async def test_given_replicas_are_taken_and_validation_writes_nothing(w: KafkaWorld) -> None:
    zxid = w.server.tree.zxid
    assert await created(w, grow("t", 3, (3, 1), validate_only=True)) == {"t": 0}
    assert w.server.tree.zxid == zxid
    assert await created(w, grow("t", 3, (3, 1))) == {"t": 0}
    assert w.assignment("t").partitions[2].replicas == (3, 1)


@in_world(1, 2, 3, 4)
async def test_a_refused_growth_has_kafkas_error(w: KafkaWorld) -> None:
    await w.topic("going", (1, 4), leaders=True)
    w.die(4)
    await w.mark("going")
    await running(w)
    assert await created(w, grow("t", 2)) == {"t": 37}
    assert await created(w, grow("u", 2)) == {"u": 3}
    assert await created(w, grow("no/slash", 2)) == {"no/slash": 3}
    assert await created(w, grow("going", 2)) == {"going": 17}
    assert await created(w, grow("t", 3, (9, 1))) == {"t": 39}
    twice = grow("t", 3)
    answer = await carried(w, type(twice)(twice.topics * 2, 1_000, False))
    assert [(r.name, int(r.error_code)) for r in answer.results] == [("t", 42)]
    assert sorted(w.assignment("t").partitions) == [0, 1]


@in_world(before=running)
async def test_each_topic_of_a_request_grows_or_is_refused_on_its_own(w: KafkaWorld) -> None:
    for name in ("u", "v"):
        await w.topic(name, (1, 2), leaders=True)
    await w.propagated()
    wanted = [grow("t", 1), grow("u", 2), grow("never", 2), grow("v", 3)]
    for validate_only in (True, False):
        answer = await carried(w, type(wanted[0])(tuple(one.topics[0] for one in wanted), 5_000, validate_only))
        assert [(r.name, int(r.error_code)) for r in answer.results] == [("t", 37), ("u", 0), ("never", 3), ("v", 0)]
        grown = {"u": 1, "v": 1} if validate_only else {"u": 2, "v": 3}
        assert {name: len(found) for name, found in w.assignments().items()} == {"t": 2} | grown


@in_world(before=running)
async def test_a_reassignment_under_way_holds_it_up(w: KafkaWorld) -> None:
    found = w.assignment("t")
    moving = {**found.partitions, 0: Assignment((1, 2, 3), (3,), (2,))}
    await w.operator.set(paths.topic("t"), encode_topic(moving, found.topic_id), found.version)
    assert await created(w, grow("t", 3)) == {"t": 60}


@in_world(before=running)
async def test_a_topic_grows_while_a_cancelled_reassignment_waits_for_a_replica_to_stop(w: KafkaWorld) -> None:
    """Who lists reassignments does not see it any more; the topic znode names the replica until it has stopped."""
    await alter(w, {("t", 0): (1, 3)})
    w.wires.silent.add(3)
    await alter(w, {("t", 0): None})
    assert w.assignment("t").partitions[0] == Assignment((1, 2, 3), (3,), (3,))
    assert await created(w, grow("t", 3)) == {"t": 0}
    w.wires.respond(3)
    await w.propagated()
    await eventually(lambda: w.assignment("t").partitions[0] == Assignment((1, 2)))
    assert len(w.assignment("t").partitions) == 3
    w.agreed()


@in_world(before=running)
async def test_partitions_that_another_client_adds_in_between_are_kept(w: KafkaWorld) -> None:
    w.active.script.at(paths.topic("t"), lambda: w.expand("t", (3, 1)))
    assert await created(w, grow("t", 4)) == {"t": 0}
    await w.propagated()
    assert sorted(w.assignment("t").partitions) == [0, 1, 2, 3]
    assert w.assignment("t").partitions[2].replicas == (3, 1)
    w.agreed()


@in_virtual_time
async def test_a_write_whose_reply_is_lost_is_found_again() -> None:
    def lost() -> None:
        raise OutcomeUnknown("the reply is lost")

    async with world() as w:
        await running(w)
        w.active.script.at(paths.topic("t"), lost, when="after")
        assert await created(w, grow("t", 4)) == {"t": 0}
        await w.propagated()
        assert all(("t", p) in w.leaders() for p in range(4))


@in_world(before=running)
async def test_partitions_that_were_written_and_are_not_known_yet_are_waited_for(w: KafkaWorld) -> None:
    """The connection is lost between the znode and the model: those that were there before are led."""
    session = w.active.zk.session_id
    w.active.script.at(paths.topic("t"), lambda: w.server.suspend(session), when="after")
    waiting = asyncio.create_task(created(w, grow("t", 4)))
    await asyncio.sleep(0.2)
    assert len(w.assignment("t").partitions) == 4
    assert w.term.cluster.find("t", 3) is None
    assert not waiting.done()
    w.server.resume(session)
    assert await waiting == {"t": 0}
    assert all(("t", p) in w.leaders() for p in range(4))


@in_world(before=running)
async def test_a_repeated_call_succeeds_by_its_earlier_attempt(w: KafkaWorld) -> None:
    assert await created(w, grow("t", 4)) == {"t": 0}
    assert await created(w, grow("t", 4), attempt=1) == {"t": 0}
    assert await created(w, grow("t", 4)) == {"t": 37}


@in_world()
async def test_a_topic_grows_right_after_it_was_created(w: KafkaWorld) -> None:
    await w.begin_term()
    first = asyncio.create_task(created(w, create(topic("t", 1, 1))))
    second = asyncio.create_task(created(w, grow("t", 3)))
    assert (await first, await second) == ({"t": 0}, {"t": 0})
    await w.propagated()
    w.agreed()


@in_world(before=running)
async def test_a_call_that_waits_when_the_term_ends_is_refused(w: KafkaWorld) -> None:
    w.die(1, 2, 3)
    await w.settle()
    await w.boot(9)
    await w.topic("dark", (8,))
    await w.settle()
    waiting = asyncio.create_task(created(w, grow("dark", 2, (9,))))
    await eventually(lambda: w.term.cluster.find("dark", 1) is not None)
    w.term.gate.end("a test")
    with pytest.raises(NotController):
        await waiting
