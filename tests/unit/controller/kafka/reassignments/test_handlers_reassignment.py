"""Reassignments on the controller's world: by call and by znode, to their end, cancelled, overridden, resumed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

import pytest

from controller.kafka.path.controller import Controller
from controller.kafka.reassignments import reassignment
from controller.kafka.reassignments.reassignment_requests import finish_reassignments
from metadata_store import paths
from metadata_store.commits.topic_commit import TopicOutcome
from metadata_store.errors import OutcomeUnknown
from metadata_store.port import ANY_VERSION
from state_machines.decisions.reassignment import LAST_IN_SYNC, NotReassigned
from state_machines.model.types import Assignment, TopicPartition
from tests.kit.deadlines import in_virtual_time
from tests.kit.kafka.parts import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Wire
from tests.kit.kafka.reassignments import (
    alter,
    caught_up,
    join,
    listed,
    propagated,
    request_by_znode,
    requested_by_znode,
    written,
)
from tests.kit.kafka.world import KafkaWorld, in_world, world
from tests.kit.wire import unframe

MOVING = Assignment((2, 3, 1), (3,), (1,))


async def running(w: KafkaWorld, ibp: str = "3.9", *replicas: tuple[int, ...]) -> None:
    """t has one partition on brokers 1 and 2, led by 1, unless said otherwise; everybody knows."""
    await w.topic("t", *(replicas or ((1, 2),)), leaders=True)
    await w.begin_term(ibp)
    await propagated(w)
    w.forget()


def refused(found: Mapping[tuple[str, int], NotReassigned]) -> dict[tuple[str, int], int]:
    return {name: int(why.error) for name, why in found.items()}


def new_to(w: KafkaWorld, broker: int) -> dict[tuple[str, int], bool]:
    """Partitions of which a broker heard LeaderAndIsr, and whether it heard its last leader epoch as a new replica."""
    heard: dict[tuple[str, int], tuple[int, bool]] = {}
    for name, p in w.wires.partitions(broker, LEADER_AND_ISR):
        heard[name] = max(heard.get(name, (-1, False)), (p.leader_epoch, p.is_new))
    return {name: is_new for name, (_, is_new) in heard.items()}


async def left_while_it_should_stop(w: KafkaWorld) -> None:
    """Broker 1 is gone: it was told to delete its replica, and did not answer."""
    await running(w)
    exchange = Wire.exchange

    async def hears_no_stops(wire: Wire, parts: Sequence[bytes]) -> bytes:
        if wire._broker == 1 and int.from_bytes(unframe(parts)[:2], "big") == STOP_REPLICA:
            await asyncio.get_running_loop().create_future()
        return await exchange(wire, parts)

    with mock.patch.object(Wire, "exchange", hears_no_stops):
        await alter(w, {("t", 0): (2,)})
        await w.settle()
        assert written(w, "t") == Assignment((2, 1), (), (1,))
        w.die(1)
    w.wires.frames.clear()


# -- from the first step to the last


@pytest.mark.seed("S4-51", "S4-52", "S4-53", "S4-54", "S4-57", "S4-58", "S4-59", "S4-60", "S4-62", "S4-63")
@in_world(1, 2, 3, 4, 5, 6)
async def test_the_protocols_table(w: KafkaWorld) -> None:
    """{1,2,3} to {4,5,6}: what ZooKeeper holds, and who was told what, when each of the writes is made."""
    await running(w, "3.9", (1, 2, 3))
    seen = [row(w)]
    assert await alter(w, {("t", 0): (4, 5, 6)}) == {}
    seen.append(row(w))
    await propagated(w)
    assert [new_to(w, b) for b in range(1, 7)] == [{("t", 0): b > 3} for b in range(1, 7)]
    assert await listed(w) == {("t", 0): Assignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))}
    [entry] = w.wires.requests(5, LEADER_AND_ISR)[-1].topic_states[0].partition_states
    assert (entry.adding_replicas, entry.removing_replicas) == ((4, 5, 6), (1, 2, 3))

    gone: list[set[tuple[str, int]]] = []
    w.active.script.at(paths.topic("t"), lambda: seen.append(row(w)), exact=True)
    w.active.script.at(paths.topic("t"), lambda: gone.extend({*w.wires.deleted(b)} for b in (1, 2, 3)), exact=True)
    w.active.script.writes.clear()
    await join(w)
    await propagated(w)
    seen.append(row(w))
    union = (4, 5, 6, 1, 2, 3)
    assert seen == [
        ((1, 2, 3), 1, (1, 2, 3)),
        (union, 1, (1, 2, 3)),
        (union, 4, (4, 5, 6)),
        ((4, 5, 6), 4, (4, 5, 6)),
    ]
    assert gone == [{("t", 0)}] * 3, "the topic znode is written once the replicas have gone"
    state, topic = paths.state("t", 0), paths.topic("t")
    assert [paths_[1:] for paths_ in w.active.script.writes] == [[state], [state], [topic]]
    assert w.states["t", 0].leader_epoch == 3 + 5
    assert await listed(w) == {}
    assert all(w.wires.last_sent(b, UPDATE_METADATA)["t", 0] == (4, 8) for b in range(1, 7))
    assert all(w.wires.last_sent(b, LEADER_AND_ISR)["t", 0] == (4, 8) for b in (4, 5, 6))
    w.agreed()


def row(w: KafkaWorld) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    held = w.states["t", 0]
    return written(w, "t").replicas, held.leader, tuple(sorted(held.isr))


@pytest.mark.seed("S4-51", "S4-52", "S4-53", "S4-57", "S4-60")
@in_world(1, 2, 3, 4)
async def test_many_partitions_are_a_few_multis_and_one_request_pair_per_broker(w: KafkaWorld) -> None:
    await w.topic("u", *[(2, 1)] * 60, leaders=True)
    await running(w, "3.9", *[(1, 2)] * 60)
    everything = {(topic, p): (3, 4) for topic in "tu" for p in range(60)}
    written_before = w.counters.writes
    await alter(w, {**everything})
    assert w.counters.writes - written_before == 2 + 120
    assert [len(paths_) for paths_ in w.active.script.writes] == [3, 121], "two topic znodes, then all states"
    await propagated(w)
    heard = [len(w.wires.requests(b, LEADER_AND_ISR)) for b in (1, 2, 3, 4)]
    assert max(heard) <= 2, "what it leads, and what it follows once its leaders know"
    assert len(new_to(w, 3)) == len(new_to(w, 4)) == 120

    w.active.script.writes.clear()
    w.wires.frames.clear()
    asked = [w.proposal(*name, (*state.isr, 3, 4)) for name, state in w.states.items()]
    await asyncio.gather(*(w.alter_partition(b, *[p for p in asked if p.isr[0] == b]) for b in (1, 2)))
    await propagated(w)
    assert [len(paths_) for paths_ in w.active.script.writes] == [121, 121, 3]
    assert [len(w.wires.requests(b, STOP_REPLICA)) for b in (1, 2, 3, 4)] == [1, 1, 0, 0]
    assert len({*w.wires.deleted(1)}) == len({*w.wires.deleted(2)}) == 120
    assert w.term.cluster.reassigning == {}
    assert {a for t in "tu" for a in w.assignment(t).partitions.values()} == {Assignment((3, 4))}
    w.agreed()


@pytest.mark.seed("S4-56", "S4-60")
@in_world()
async def test_what_needs_no_new_replica_is_done_without_any_leader(w: KafkaWorld) -> None:
    await running(w, "3.9", (1, 2), (1, 2, 3))
    assert await alter(w, {("t", 0): (2, 1), ("t", 1): (2,)}) == {}
    assert await listed(w) == {}, "what only waits for its topic znode is done"
    await propagated(w)
    assert (written(w, "t", 0), written(w, "t", 1)) == (Assignment((2, 1)), Assignment((2,)))
    assert w.leaders() == {("t", 0): (1, (1, 2)), ("t", 1): (2, (2,))}
    assert ({*w.wires.deleted(1)}, {*w.wires.deleted(3)}) == ({("t", 1)}, {("t", 1)})


@pytest.mark.seed("S4-59", "S4-60")
@in_world(before=running)
async def test_the_final_rewrite_waits_for_replicas_to_stop_for_a_bounded_time(w: KafkaWorld) -> None:
    started_s = asyncio.get_running_loop().time()
    silent = asyncio.Event()
    exchange = Wire.exchange

    async def never_stops(wire: Wire, parts: Sequence[bytes]) -> bytes:
        if wire._broker == 1 and int.from_bytes(unframe(parts)[:2], "big") == STOP_REPLICA:
            await silent.wait()
        return await exchange(wire, parts)

    with mock.patch.object(Wire, "exchange", never_stops):
        await alter(w, {("t", 0): (2,)})
        await w.settle()
        await asyncio.sleep(25.0)
        await w.settle()
        assert written(w, "t") == Assignment((2, 1), (), (1,)), "broker 1 may yet stop it"
        await asyncio.sleep(10.0)
        await w.settle()
        assert written(w, "t") == Assignment((2,)), "as Kafka's controller: it keeps its log"
        silent.set()
    await propagated(w)
    assert asyncio.get_running_loop().time() - started_s > 30.0


@pytest.mark.seed("S4-59", "S4-60")
@in_world()
async def test_a_second_reassignment_waits_for_its_own_replicas_although_those_of_the_first_have_stopped(
    w: KafkaWorld,
) -> None:
    await running(w, "3.9", (1, 2, 3))
    silent, writes_on = asyncio.Event(), True
    exchange = Wire.exchange

    async def never_stops(wire: Wire, parts: Sequence[bytes]) -> bytes:
        if wire._broker == 3 and int.from_bytes(unframe(parts)[:2], "big") == STOP_REPLICA:
            await silent.wait()
        return await exchange(wire, parts)

    async def foreign() -> None:
        if writes_on:
            await w.touch(paths.topic("t"))

    with mock.patch.object(Wire, "exchange", never_stops):
        await alter(w, {("t", 0): (2, 3)})
        w.active.script.at(paths.topic("t"), foreign, exact=True, times=1_000)
        await propagated(w)
        assert written(w, "t") == Assignment((2, 3, 1), (), (1,)), "broker 1 has stopped, and the rewrite fails"
        writes_on = False
        await alter(w, {("t", 0): (2,)})
        await asyncio.sleep(10.0)
        await w.settle()
        assert written(w, "t").removing == (3, 1), "broker 3 may yet stop it"
        silent.set()
    await propagated(w)
    assert written(w, "t") == Assignment((2,))


@pytest.mark.seed("S4-59", "S4-60")
@in_world(before=left_while_it_should_stop)
async def test_a_broker_that_returns_before_the_final_rewrite_is_sent_the_removal_again(w: KafkaWorld) -> None:
    """Its former life may not have heard of it, and once the topic znode forgets the replica nobody would tell it."""
    await w.boot(1)
    await propagated(w)
    assert written(w, "t") == Assignment((2,))
    assert {*w.wires.deleted(1)} == {("t", 0)}


@pytest.mark.seed("S4-60", "S4-86")
@in_world(before=left_while_it_should_stop)
async def test_a_fenced_term_sends_no_removal_to_a_returning_broker(w: KafkaWorld) -> None:
    w.active.script.at(paths.CONTROLLER_EPOCH, w.seize)
    await w.boot(1)
    assert "another controller" in await w.active.ended()
    assert {*w.wires.deleted(1)} == set()


@pytest.mark.seed("S4-60")
@in_world(before=left_while_it_should_stop)
async def test_a_returning_broker_is_sent_the_removal_once_the_connection_is_back(w: KafkaWorld) -> None:
    session = w.active.zk.session_id
    w.active.script.at(paths.CONTROLLER_EPOCH, lambda: w.server.suspend(session))
    await w.boot(1)
    await asyncio.sleep(0.1)
    assert {*w.wires.deleted(1)} == set()
    w.server.resume(session)
    await propagated(w)
    assert written(w, "t") == Assignment((2,))
    assert {*w.wires.deleted(1)} == {("t", 0)}


@pytest.mark.seed("S4-60")
@in_world(before=left_while_it_should_stop)
async def test_a_removal_that_lost_connections_keep_from_being_sent_again_is_not_taken_for_stopped(
    w: KafkaWorld,
) -> None:
    session, c = w.active.zk.session_id, w.term.controller
    w.active.script.at(paths.CONTROLLER_EPOCH, lambda: w.server.suspend(session))
    await w.boot(1)
    await asyncio.sleep(0.1)
    for _ in range(2):  # other reassignments end meanwhile
        await finish_reassignments(c)
        await asyncio.sleep(0.1)
        assert not c.reassignment_queue.stopped
    w.server.resume(session)
    await propagated(w)
    assert {*w.wires.deleted(1)} == {("t", 0)}
    assert written(w, "t") == Assignment((2,))


@pytest.mark.seed("S4-60")
@in_world(before=left_while_it_should_stop)
async def test_a_broker_that_goes_away_again_before_its_removal_is_sent_is_not_waited_for(w: KafkaWorld) -> None:
    session = w.active.zk.session_id
    w.active.script.at(paths.CONTROLLER_EPOCH, lambda: w.server.suspend(session), times=2)
    await w.boot(1)
    await asyncio.sleep(0.1)
    w.die(1)
    for _ in range(2):
        w.server.resume(session)
        await asyncio.sleep(0.1)
    await propagated(w)
    assert written(w, "t") == Assignment((2,))


@pytest.mark.seed("S4-69", "S4-78")
@in_world(before=running)
async def test_a_deletion_that_waits_for_a_reassignment_goes_on_once_that_is_cancelled(w: KafkaWorld) -> None:
    await alter(w, {("t", 0): (2, 3)})
    w.die(3)
    await w.mark("t")
    await w.settle()
    assert written(w, "t").moving, "broker 3 may yet return"
    assert await alter(w, {("t", 0): None}) == {}
    await propagated(w)
    assert w.znodes_of("t") == []


@pytest.mark.seed("S4-54")
@in_world()
async def test_a_target_that_is_in_sync_by_its_election_completes(w: KafkaWorld) -> None:
    """Nobody but the controller changes the ISR: the only replica is on a broker that never was."""
    await w.topic("t", (9,))
    await w.serve()
    assert await alter(w, {("t", 0): (1,)}) == {}
    await propagated(w)
    assert written(w, "t") == Assignment((1,))
    assert w.leaders() == {("t", 0): (1, (1,))}


# -- what is asked for


@pytest.mark.seed("S4-84")
@in_world()
async def test_each_partition_of_a_call_has_its_own_error(w: KafkaWorld) -> None:
    await running(w, "3.9", (1, 2), (1, 2), (1, 2), (1, 2))
    found = await alter(
        w, {("t", 0): (2, 3), ("t", 1): (2, 9), ("t", 2): None, ("t", 3): (), ("t", 4): (1,), ("no", 0): (1,)}
    )
    assert refused(found) == {("t", 1): 39, ("t", 2): 85, ("t", 3): 39, ("t", 4): 3, ("no", 0): 3}
    assert all(why.why for why in found.values())
    assert [written(w, "t", p).moving for p in range(4)] == [True, False, False, False]
    assert await listed(w, ("t", 0), ("t", 1), ("no", 7)) == {("t", 0): MOVING}
    assert await listed(w, ("t", 1)) == {}


@pytest.mark.seed("S4-84")
@in_world(before=running)
async def test_a_call_that_is_repeated_begins_once_more_and_ends_the_same(w: KafkaWorld) -> None:
    """As in Kafka: a new leader epoch each time, no further write of the topic znode."""
    assert await alter(w, {("t", 0): (2, 3)}) == {}
    version = w.assignment("t").version
    assert await alter(w, {("t", 0): (2, 3)}) == {}
    assert (w.assignment("t").version, w.states["t", 0].leader_epoch) == (version, 3 + 2)
    await caught_up(w)
    assert (written(w, "t"), w.leaders()) == (Assignment((2, 3)), {("t", 0): (2, (2, 3))})
    zxid = w.server.tree.zxid
    assert await alter(w, {("t", 0): (2, 3)}) == {}
    await propagated(w)
    assert w.server.tree.zxid == zxid


@pytest.mark.kafka(
    "ReassignPartitionsCommandTest.testCancellation",
    "ReassignPartitionsCommandTest.testCancellationWithAddingReplicaInIsr",
)
@pytest.mark.seed("S4-84")
@pytest.mark.parametrize("phase", ["begun", "in sync, not all", "done"])
@in_world(1, 2, 3, 4, before=running)
async def test_a_reassignment_is_cancelled_at_each_phase(w: KafkaWorld, phase: str) -> None:
    await alter(w, {("t", 0): (3, 4)})
    await propagated(w)
    if phase != "begun":
        isr = (1, 2, 3) if phase == "in sync, not all" else (1, 2, 3, 4)
        await w.alter_partition(1, w.proposal("t", 0, isr))
        await propagated(w)
    found = await alter(w, {("t", 0): None})
    await propagated(w)
    if phase == "done":
        assert refused(found) == {("t", 0): 85}
        assert written(w, "t") == Assignment((3, 4))
        return
    assert found == {}
    assert (written(w, "t"), w.leaders()) == (Assignment((1, 2)), {("t", 0): (1, (1, 2))})
    assert ({*w.wires.deleted(3)}, {*w.wires.deleted(4)}, {*w.wires.deleted(1)}) == ({("t", 0)}, {("t", 0)}, set())
    assert (w.term.cluster.reassigning, await listed(w)) == ({}, {})
    w.agreed()


@pytest.mark.seed("S4-84")
@in_world()
async def test_the_last_copy_in_sync_is_not_cancelled_away(w: KafkaWorld) -> None:
    await running(w, "3.9", (1,))
    await alter(w, {("t", 0): (2, 3)})
    await w.alter_partition(1, w.proposal("t", 0, (1, 2)))
    w.die(1)
    await propagated(w)
    assert w.leaders() == {("t", 0): (2, (2,))}
    found = await alter(w, {("t", 0): None})
    assert [(why.error, why.why) for why in found.values()] == [(39, LAST_IN_SYNC)]
    await caught_up(w)
    assert written(w, "t") == Assignment((2, 3))


@pytest.mark.seed("S4-84")
@in_world(1, 2, 3, 4, before=running)
async def test_an_override_drops_the_replicas_of_the_first_target_alone(w: KafkaWorld) -> None:
    await alter(w, {("t", 0): (2, 3)})
    await propagated(w)
    await alter(w, {("t", 0): (2, 4)})
    assert written(w, "t") == Assignment((2, 4, 1, 3), (4, 3), (1, 3))
    await propagated(w)
    assert written(w, "t") == Assignment((2, 4, 1), (4,), (1,))
    await caught_up(w)
    assert (written(w, "t"), w.leaders()) == (Assignment((2, 4)), {("t", 0): (2, (2, 4))})
    assert ({*w.wires.deleted(3)}, {*w.wires.deleted(1)}) == ({("t", 0)}, {("t", 0)})


@pytest.mark.seed("S4-84")
@in_world()
async def test_overlapping_calls_each_have_their_partitions(w: KafkaWorld) -> None:
    await running(w, "3.9", (1, 2), (1, 2), (1, 2))
    first = alter(w, {("t", 0): (2, 3), ("t", 1): (2, 3)})
    second = alter(w, {("t", 1): (3, 1), ("t", 2): (3, 1)})
    assert not any(await asyncio.gather(first, second))
    await caught_up(w)
    assert [written(w, "t", p).replicas for p in range(3)] == [(2, 3), (3, 1), (3, 1)]


# -- /admin/reassign_partitions


@pytest.mark.seed("S4-61", "S4-84")
@in_world()
async def test_the_znode_shrinks_as_its_partitions_are_done_and_may_be_used_again(w: KafkaWorld) -> None:
    await running(w, "3.9", (1, 2), (1, 2), (1, 2))
    await request_by_znode(w, {("t", 0): (2, 3), ("t", 1): (2, 3), ("t", 2): (2, 1), ("t", 7): (1,), ("no", 0): (1,)})
    await propagated(w)
    assert requested_by_znode(w) == {("t", 0): (2, 3), ("t", 1): (2, 3)}, "what is refused or done has left it"
    await join(w, ("t", 0))
    await propagated(w)
    assert requested_by_znode(w) == {("t", 1): (2, 3)}
    await caught_up(w)
    assert requested_by_znode(w) is None
    await request_by_znode(w, {("t", 0): (1, 2)})
    assert written(w, "t").target == (1, 2)
    await caught_up(w)
    assert (written(w, "t"), requested_by_znode(w)) == (Assignment((1, 2)), None)


@pytest.mark.seed("S4-84")
@in_world()
async def test_a_znode_that_is_changed_is_read_again(w: KafkaWorld) -> None:
    await running(w, "3.9", (1, 2), (1, 2))
    await request_by_znode(w, {("t", 0): (2, 3)})
    await request_by_znode(w, {("t", 0): (1, 3), ("t", 1): (2, 3)})
    assert [written(w, "t", p).target for p in (0, 1)] == [(1, 3), (2, 3)]
    await caught_up(w)
    assert ([written(w, "t", p).replicas for p in (0, 1)], requested_by_znode(w)) == ([(1, 3), (2, 3)], None)


@in_world()
async def test_a_topic_that_vanishes_leaves_the_znode_of_requests(w: KafkaWorld) -> None:
    await running(w, "3.9", (1, 2))
    await w.topic("u", (1, 2), leaders=True)
    await propagated(w)
    await request_by_znode(w, {("t", 0): (2, 3), ("u", 0): (2, 3)})
    for path in (
        paths.state("u", 0),
        *(f"{paths.topic('u')}{part}" for part in ("/partitions/0", "/partitions", "")),
    ):
        await w.operator.delete(path, ANY_VERSION)
    await propagated(w)
    assert requested_by_znode(w) == {("t", 0): (2, 3)}
    await caught_up(w)
    await propagated(w)
    assert requested_by_znode(w) is None


@in_world(before=running)
async def test_a_malformed_znode_of_requests_is_reported_and_holds_up_no_call(w: KafkaWorld) -> None:
    await w.operator.create(paths.REASSIGN_PARTITIONS, b"{")
    await w.settle()
    assert paths.REASSIGN_PARTITIONS in w.counters.malformed
    assert await alter(w, {("t", 0): (2, 3)}) == {}
    await w.operator.delete(paths.REASSIGN_PARTITIONS, -1)
    await w.settle()
    assert w.counters.malformed == {}
    await request_by_znode(w, {("t", 0): (3, 1)})
    await caught_up(w)
    assert (written(w, "t"), requested_by_znode(w)) == (Assignment((3, 1)), None)


@in_world()
async def test_an_unusable_entry_of_the_znode_leaves_it_and_holds_up_no_other(
    w: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    await running(w, "3.9", (1, 2), (1, 2))
    good = {"topic": "t", "partition": 0, "replicas": [2, 3]}
    bad = {"topic": "t", "partition": 1, "replicas": [2, -3]}
    await w.operator.create(
        paths.REASSIGN_PARTITIONS, json.dumps({"version": 1, "partitions": [good, bad], "vendor": 1}).encode()
    )
    await propagated(w)
    assert w.counters.malformed == {}
    assert "1 of 2 entries cannot be used (partitions[1]: Expected `int` >= 0 - at `$.replicas[1]`)" in caplog.text
    node = w.node(paths.REASSIGN_PARTITIONS)
    assert node is not None
    assert json.loads(node.data or b"") == {"version": 1, "partitions": [good], "vendor": 1}
    await caught_up(w)
    assert (written(w, "t").replicas, written(w, "t", 1), requested_by_znode(w)) == ((2, 3), Assignment((1, 2)), None)


@in_world()
async def test_a_znode_of_unusable_entries_alone_is_deleted(w: KafkaWorld) -> None:
    await running(w, "3.9", (1, 2))
    await request_by_znode(w, {("t", 0): (2, -3)})
    assert (w.node(paths.REASSIGN_PARTITIONS), written(w, "t")) == (None, Assignment((1, 2)))


@pytest.mark.seed("S4-61", "S4-84")
@in_world(1, 2, 3, 4)
async def test_a_call_for_a_partition_of_the_znode_wins_and_leaves_the_others(w: KafkaWorld) -> None:
    """The znode is rewritten first: whoever comes after a controller that dies in between begins neither again."""
    await running(w, "3.9", (1, 2), (1, 2))
    await request_by_znode(w, {("t", 0): (2, 3), ("t", 1): (2, 3)})
    await propagated(w)
    w.active.script.writes.clear()
    await alter(w, {("t", 0): (2, 4)})
    assert requested_by_znode(w) == {("t", 1): (2, 3)}
    assert [paths_[1] for paths_ in w.active.script.writes[:2]] == [paths.REASSIGN_PARTITIONS, paths.topic("t")]
    await alter(w, {("t", 1): None})
    assert requested_by_znode(w) is None
    await caught_up(w)
    assert [written(w, "t", p).replicas for p in (0, 1)] == [(2, 4), (2, 1)]


@pytest.mark.kafka(
    "ControllerIntegrationTest.testPartitionReassignmentToBrokerWithOfflineLogDir",
    "ControllerIntegrationTest.testPartitionReassignmentWithOfflineReplicaHaltingProgress",
    "ControllerIntegrationTest.testPartitionReassignmentResumesAfterReplicaComesOnline",
)
@pytest.mark.seed("S4-50", "S4-61")
@in_world(1, 3)
async def test_by_znode_a_destination_may_be_down_and_it_goes_on_when_that_comes(w: KafkaWorld) -> None:
    """Leader epochs as Kafka's own tests have them: one while it waits, one at the return, two more at the end."""
    await running(w, "3.9", (1,))
    await request_by_znode(w, {("t", 0): (2,)})
    await propagated(w)
    assert (w.states["t", 0].leader_epoch, requested_by_znode(w)) == (3 + 1, {("t", 0): (2,)})
    await w.boot(2)
    await propagated(w)
    assert w.states["t", 0].leader_epoch == 3 + 2
    assert new_to(w, 2) == {("t", 0): True}, "it may choose a log directory that works"
    await caught_up(w)
    assert (w.states["t", 0].leader_epoch, written(w, "t"), requested_by_znode(w)) == (3 + 4, Assignment((2,)), None)


# -- troubles


@pytest.mark.seed("S4-50", "S4-54")
@in_world(1, 2, 3)
async def test_an_added_replica_that_returns_as_the_last_one_in_sync_is_not_sent_as_new(w: KafkaWorld) -> None:
    """On another disk it would begin an empty log, and lead with it."""
    await running(w, "3.9", (1, 2))
    await alter(w, {("t", 0): (2, 3)})
    await propagated(w)
    await w.alter_partition(1, w.proposal("t", 0, (1, 3)))
    w.die(1, 2)
    await propagated(w)
    w.die(3)
    await propagated(w)
    assert w.states["t", 0].isr == (3,)
    w.wires.frames.clear()
    await w.boot(3)
    await propagated(w)
    assert w.leaders() == {("t", 0): (3, (3,))}
    assert new_to(w, 3) == {("t", 0): False}


@pytest.mark.seed("S4-50", "S4-54")
@in_world(before=running)
async def test_a_reassignment_waits_for_a_destination_that_dies_and_returns(w: KafkaWorld) -> None:
    await alter(w, {("t", 0): (2, 3)})
    await propagated(w)
    w.die(3)
    await propagated(w)
    await join(w)
    assert (written(w, "t"), await listed(w)) == (MOVING, {("t", 0): MOVING})
    await w.boot(3)
    await propagated(w)
    assert new_to(w, 3) == {("t", 0): True}
    await caught_up(w)
    assert (written(w, "t"), w.leaders()) == (Assignment((2, 3)), {("t", 0): (2, (2, 3))})


@pytest.mark.seed("S4-54", "S4-59")
@in_world(before=running)
async def test_the_leader_and_origin_dies_before_the_end(w: KafkaWorld) -> None:
    """Nobody stops a replica on a broker that is gone: the end does not wait for it."""
    await alter(w, {("t", 0): (2, 3)})
    w.die(1)
    await caught_up(w)
    assert (written(w, "t"), w.leaders()) == (Assignment((2, 3)), {("t", 0): (2, (2, 3))})
    assert {*w.wires.deleted(1)} == set()


@in_world(before=running)
async def test_partitions_that_a_broker_adds_meanwhile_are_kept(w: KafkaWorld) -> None:
    """Kafka's controller rewrites topic znodes whatever their version: partitions would be lost."""
    w.active.script.at(paths.topic("t"), lambda: w.expand("t", (3, 1)), exact=True)
    assert await alter(w, {("t", 0): (2, 3)}) == {}
    await w.settle()
    w.active.script.at(paths.topic("t"), lambda: w.expand("t", (1, 3)), exact=True)
    await caught_up(w)
    assert w.assignments()["t"] == {0: (2, 3), 1: (3, 1), 2: (1, 3)}
    assert set(w.leaders()) == {("t", 0), ("t", 1), ("t", 2)}
    w.agreed()


@pytest.mark.parametrize("which", ["rewrite", "states", "final rewrite"])
@in_world(before=running)
async def test_a_write_of_unknown_outcome_is_read_back(w: KafkaWorld, which: str) -> None:
    """It was applied, and nobody was told so."""
    path = paths.state("t", 0) if which == "states" else paths.topic("t")
    if which != "final rewrite":
        w.active.script.at(path, lost, when="after", exact=True)
    assert await alter(w, {("t", 0): (2, 3)}) == {}
    await propagated(w)
    if which == "final rewrite":
        w.active.script.at(path, lost, when="after", exact=True)
    await caught_up(w)
    assert (written(w, "t"), w.leaders()) == (Assignment((2, 3)), {("t", 0): (2, (2, 3))})
    assert w.counters.unknown_outcomes == 1
    assert w.term.cluster.reassigning == {}
    w.agreed()


def lost() -> None:
    raise OutcomeUnknown("lost")


@in_world()
async def test_a_topic_znode_that_others_write_all_the_time_is_given_up_with_its_partitions_alone(
    w: KafkaWorld,
) -> None:
    await w.topic("u", (1, 2), leaders=True)
    await running(w)

    w.active.script.at(paths.topic("u"), lambda: w.touch(paths.topic("u")), exact=True, times=10)
    found = await alter(w, {("t", 0): (2, 3), ("u", 0): (2, 3)})
    assert refused(found) == {("u", 0): -1}
    assert not written(w, "u").moving
    await caught_up(w)
    assert written(w, "t") == Assignment((2, 3))


@in_world(before=running)
async def test_a_topic_that_was_recreated_meanwhile_is_another_topic(w: KafkaWorld) -> None:
    """Its znode may have the version that the former one had."""
    store = w.term.controller.store
    commit = store.commit_topics

    async def recreated_before(*changes: Any, **options: Any) -> TopicOutcome:
        await w.delete_topic("t")
        await w.topic("t", (2, 1))
        return await commit(*changes, **options)

    with mock.patch.object(store, "commit_topics", recreated_before):
        assert refused(await alter(w, {("t", 0): (2, 3)})) == {("t", 0): 3}
    await propagated(w)
    assert (written(w, "t"), w.leaders()) == (Assignment((2, 1)), {("t", 0): (2, (2, 1))})
    w.agreed()


# -- IBP below 2.7-IV2


@pytest.mark.kafka("ReassignPartitionsCommandTest.testReassignmentWithAlterPartitionDisabled")
@pytest.mark.seed("S4-54", "S4-60")
@pytest.mark.parametrize("notified", [False, True])
@in_world()
async def test_isrs_that_leaders_write_themselves_complete_it(w: KafkaWorld, notified: bool) -> None:
    """Their state znodes are watched: the notification comes seconds later, or never where the leader dies."""
    await running(w, "2.7-IV1")
    await alter(w, {("t", 0): (2, 3)})
    await propagated(w)
    await join(w, by_call=False)
    if notified:
        await w.notify(TopicPartition("t", 0))
    await propagated(w)
    assert (written(w, "t"), w.leaders()) == (Assignment((2, 3)), {("t", 0): (2, (2, 3))})


@pytest.mark.seed("S4-54")
@in_world()
async def test_only_changed_state_znodes_are_read_again(w: KafkaWorld) -> None:
    await running(w, "2.7-IV1", (1, 2), (1, 2))
    await alter(w, {("t", 0): (2, 3), ("t", 1): (2, 3)})
    await propagated(w)
    with mock.patch.object(Controller, "reread", autospec=True, side_effect=Controller.reread) as reread:
        await w.leader_writes("t", 1, (1,))
        await propagated(w)
    assert {i for call in reread.call_args_list for i in call.args[1]} == {w.term.cluster.find("t", 1)}
    assert w.leaders()["t", 1] == (1, (1,))


@pytest.mark.seed("S4-54")
@in_world()
async def test_a_state_znode_that_is_behind_is_read_before_it_is_begun(w: KafkaWorld) -> None:
    """The leader had shrunk its ISR, and nobody noticed yet: the target is not in sync."""
    await running(w, "2.7-IV1", (1, 2))
    await w.leader_writes("t", 0, (1,))
    await alter(w, {("t", 0): (2,)})
    await propagated(w)
    assert (written(w, "t").moving, w.leaders()) == (True, {("t", 0): (1, (1,))})
    await w.leader_writes("t", 0, (1, 2))
    await propagated(w)
    assert (written(w, "t"), w.leaders()) == (Assignment((2,)), {("t", 0): (2, (2,))})


@in_virtual_time
async def test_many_reassignments_are_decided_on_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reassignment, "TURN_ROWS", 2)
    async with world() as w:
        await running(w, "3.9", *[(1, 2)] * 5)
        with mock.patch.object(Controller, "carry_out", autospec=True, side_effect=Controller.carry_out) as carry_out:
            assert await alter(w, {("t", p): (2, 3) for p in range(5)}) == {}
            await propagated(w)
        assert carry_out.call_count == 3
        assert new_to(w, 3) == {("t", p): True for p in range(5)}


# -- the next term


@pytest.mark.seed("S4-64", "S4-69")
@in_world()
async def test_the_next_term_resumes_reassignments(w: KafkaWorld) -> None:
    await running(w, "3.9", (1, 2), (1, 2))
    await alter(w, {("t", 0): (2, 3)})
    await w.active.crash()
    await request_by_operator(w)
    w.wires.frames.clear()
    await w.begin_term()
    await propagated(w)
    assert new_to(w, 3) == {("t", 0): True, ("t", 1): True}
    assert [w.states["t", p].leader_epoch for p in (0, 1)] == [3 + 2, 3 + 1]
    await caught_up(w)
    assert [written(w, "t", p) for p in (0, 1)] == [Assignment((2, 3))] * 2
    assert requested_by_znode(w) is None
    w.agreed()


async def request_by_operator(w: KafkaWorld) -> None:
    """While nobody is in office."""
    data = b'{"version":1,"partitions":[{"topic":"t","partition":1,"replicas":[2,3]}]}'
    await w.operator.create(paths.REASSIGN_PARTITIONS, data)


@pytest.mark.seed("S4-64", "S4-69")
@in_virtual_time
async def test_reassignments_requested_while_the_connection_is_lost_begin_afterwards() -> None:
    """Watches went with it: a znode and an ISR that were written meanwhile are found."""
    for ibp in ("3.9", "2.7-IV1"):
        async with world() as w:
            await running(w, ibp, (1, 2), (1, 2))
            await alter(w, {("t", 0): (2, 3)})
            await propagated(w)
            w.server.suspend(w.active.zk.session_id)
            await request_by_operator(w)
            if ibp != "3.9":
                await w.leader_writes("t", 0, (1, 2, 3))
            w.server.resume(w.active.zk.session_id)
            await caught_up(w, by_call=ibp == "3.9")
            assert [written(w, "t", p) for p in (0, 1)] == [Assignment((2, 3))] * 2
            assert requested_by_znode(w) is None
