"""Calls that a failover cut short: repeated with the same id, they answer success for what an earlier attempt did."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from unittest import mock

import pytest
from msgspec import Struct

from brokers.listener.controller_listener import NotController
from brokers.outbound.channels import Channels
from brokers.wire.errors import Error
from brokers.wire.messages import partitions as p
from brokers.wire.messages import topics as t
from brokers.wire.primitives import ZERO_ID
from controller.kafka.path.controller import Controller
from state_machines.decisions.leader_election import ElectionError, ElectionType
from state_machines.decisions.reassignment import ReassignError
from tests.kit.carried_kit import carried, create, grow, topic
from tests.kit.controller_kafka import id_of
from tests.kit.controller_world import World, in_world

PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN


def deletion(*names: str | bytes) -> t.DeleteTopicsRequest:
    named = [t.TopicToDelete(None, x) if isinstance(x, bytes) else t.TopicToDelete(x, ZERO_ID) for x in names]
    return t.DeleteTopicsRequest(30_000, (), tuple(named))


def election(kind: ElectionType, *partitions: int, name: str = "t") -> p.ElectLeadersRequest:
    return p.ElectLeadersRequest((p.TopicPartitions(name, partitions),), 30_000, int(kind))


def reassignment(*targets: tuple[int, ...] | None) -> p.AlterPartitionReassignmentsRequest:
    partitions = tuple(p.ReassignedPartition(at, target) for at, target in enumerate(targets))
    return p.AlterPartitionReassignmentsRequest(30_000, (p.ReassignedTopic("t", partitions),))


def errors(answer: Any) -> list[int]:
    """Error codes in the order of the answer."""
    match answer:
        case t.DeleteTopicsResponse():
            return [one.error_code for one in answer.responses]
        case p.ElectLeadersResponse():
            return [one.error_code for topic in answer.replica_election_results for one in topic.partition_result]
    return [one.error_code for topic in answer.responses for one in topic.partitions]


async def running(w: World) -> None:
    """t-0 and t-1 are led by 3 although they prefer 1 and 2; u is led by its preferred replica."""
    await w.topic("t", (1, 2, 3), (2, 1, 3), leaders=True, led_by=3)
    await w.topic("u", (3, 1), leaders=True)
    await w.serve()


@pytest.mark.seed("S4-78")
@in_world(before=running)
async def test_a_deletion_that_an_earlier_attempt_finished_is_a_success(w: World) -> None:
    assert errors(await carried(w, deletion("t", id_of("u")))) == [0, 0]
    again = await carried(w, deletion("t", id_of("u")), attempt=1)
    assert [(one.name, one.topic_id, one.error_code) for one in again.responses] == [
        ("t", ZERO_ID, 0),
        (None, id_of("u"), 0),
    ]
    fresh = errors(await carried(w, deletion("t", id_of("u"))))
    assert fresh == [Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID]


@pytest.mark.seed("S4-70")
@pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN])
@in_world(before=running)
async def test_an_election_that_an_earlier_attempt_held_is_a_success(w: World, kind: ElectionType) -> None:
    if kind is PREFERRED:
        assert errors(await carried(w, election(kind, 0))) == [0]
    assert errors(await carried(w, election(kind, 0), attempt=1)) == [0]
    assert errors(await carried(w, election(kind, 0))) == [ElectionError.ELECTION_NOT_NEEDED]
    assert errors(await carried(w, election(kind, 9), attempt=1)) == [Error.UNKNOWN_TOPIC_OR_PARTITION]


@in_world(before=running)
async def test_the_success_of_an_earlier_attempt_waits_for_the_new_leader(w: World) -> None:
    waited: list[Sequence[int]] = []

    async def told(_: Channels, rows: Sequence[int], __: float) -> frozenset[int]:
        waited.append([w.term.cluster.rows[i].partition for i in rows])
        return frozenset()

    with mock.patch.object(Channels, "leaders_acknowledged", told):
        await carried(w, election(PREFERRED, 0))
        await carried(w, election(PREFERRED, 0, 1), attempt=1)
    assert waited == [[0], [0, 1]]


@pytest.mark.seed("S4-84")
@in_world(1, 2, 3, 4, before=running)
async def test_a_cancel_that_an_earlier_attempt_made_is_a_success(w: World) -> None:
    assert errors(await carried(w, reassignment((4, 2, 3)))) == [0]
    assert errors(await carried(w, reassignment(None))) == [0]
    assert errors(await carried(w, reassignment(None), attempt=1)) == [0]
    assert errors(await carried(w, reassignment(None))) == [ReassignError.NO_REASSIGNMENT_IN_PROGRESS]


@pytest.mark.seed("S4-51")
@in_world(1, 2, 3, 4, before=running)
async def test_a_reassignment_that_an_earlier_attempt_began_is_a_success_although_its_broker_died_since(
    w: World,
) -> None:
    assert errors(await carried(w, reassignment((4, 2, 3)))) == [0]
    w.die(4)
    await w.propagated()
    assert errors(await carried(w, reassignment((4, 2, 3)), attempt=1)) == [0]
    assert errors(await carried(w, reassignment((2, 4, 3)), attempt=1)) == [ReassignError.INVALID_REPLICA_ASSIGNMENT]
    assert errors(await carried(w, reassignment((4, 2, 3)))) == [ReassignError.INVALID_REPLICA_ASSIGNMENT]


CALLS: dict[str, Struct | Callable[[World], Awaitable[Any]]] = {
    "DeleteTopics": deletion("t"),
    "ElectLeaders": election(PREFERRED, 0),
    "CreateTopics": create(topic("new", 1, 1)),
    "CreatePartitions": grow("t", 3),
    "ControlledShutdown": lambda w: w.controlled_shutdown(1),
}


@pytest.mark.parametrize("name", CALLS)
@in_world(before=running)
async def test_a_call_whose_term_ends_before_its_waiter_begins_is_refused(w: World, name: str) -> None:
    spawn = Controller.spawn

    def and_end(c: Controller, *args: Any, **options: Any) -> None:
        before = set(c._beside)
        spawn(c, *args, **options)
        for waiter in c._beside - before:
            waiter.cancel()
        c.gate.end("a test")

    asked = CALLS[name]
    with mock.patch.object(Controller, "spawn", and_end):
        call = carried(w, asked) if isinstance(asked, Struct) else asked(w)
        with pytest.raises(NotController):
            await asyncio.wait_for(call, 5.0)
