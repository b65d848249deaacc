"""A term that ends while a handler waits for ZooKeeper changes neither model nor ZooKeeper nor brokers any more.

Each handler's event is played once per ZooKeeper request that its handling takes: the term ends after the request was
carried out and before its response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import pytest

from brokers.listener.controller_listener import NotController
from brokers.wire.messages.security import AlterUserScramCredentialsRequest, ScramUpsertion
from metadata_store import paths
from state_machines.decisions.leader_election import ElectionType
from tests.kit.carried_kit import carried, create, grow, topic
from tests.kit.controller_parts import DAEMON
from tests.kit.controller_world import World, world
from tests.kit.reassignment_kit import alter
from tests.kit.virtual_time import in_exact_time
from tests.unit.controller.kafka.path.test_foreign_writes import ACTS, REASSIGNMENT, Interruption, prepared

Call = Callable[[World], Awaitable[Any]]
SCRAM: Final = AlterUserScramCredentialsRequest((), (ScramUpsertion("u", 1, 4_096, b"salt", bytes(32)),))
CALLS: Final[dict[str, Call]] = {
    "AlterPartition": lambda w: w.alter_partition(2, w.proposal("t", 1, isr=(2,))),
    "AllocateProducerIds": lambda w: w.producer_ids(2),
    "ControlledShutdown": lambda w: w.controlled_shutdown(3),
    "AlterUserScramCredentials": lambda w: carried(w, SCRAM),
    "CreateTopics": lambda w: carried(w, create(topic("n", 2, 2))),
    "CreatePartitions": lambda w: carried(w, grow("t", 4)),
    "DeleteTopics": lambda w: w.delete_topics("t"),
    "ElectLeaders": lambda w: w.elect(ElectionType.PREFERRED, ("v", 0)),
    "AlterPartitionReassignments": lambda w: alter(w, {("t", 0): (1, 4)}),
}


async def recreated(w: World) -> None:
    """A topic is another one before the daemon's watches fire."""
    w.server.hold_watches(w.active.zk.session_id)
    await w.delete_topic("u")
    await w.topic("u", (3, 1), leaders=True, topic_id=b"another topic id")
    w.server.release_watches(w.active.zk.session_id)


EVENTS: Final[dict[str, Call]] = {
    "a broker dies": ACTS["a broker dies"],
    "a broker registers": ACTS["a broker registers"],
    "a leader shrinks an ISR": ACTS["a leader shrinks an ISR"],
    "a topic grows": ACTS["a topic grows"],
    "a topic vanishes": lambda w: w.delete_topic("u"),
    "a topic is recreated": recreated,
    "a topic is created": ACTS["a topic is created"],
    "a topic names a daemon": lambda w: w.topic("auto", (1, DAEMON)),
    "a topic is to be deleted": ACTS["a topic is to be deleted"],
    "a reassignment is requested": lambda w: w.operator.create(paths.REASSIGN_PARTITIONS, REASSIGNMENT),
    "preferred leaders are requested": ACTS["preferred leaders are requested"],
    "a log directory fails": ACTS["a log directory fails"],
}


def state(w: World) -> tuple[Any, ...]:
    """The model of the term, and how much it has written."""
    cluster = w.term.cluster
    model = list(cluster.rows), dict(cluster.topic_index), dict(cluster.brokers), set(cluster.deletions)
    return (*model, dict(cluster.reassigning), len(w.active.script.writes))


async def ended_at(number: int, event: Call, *, is_call: bool) -> bool:
    """Has the term end at a request; returns whether there was such a request."""
    before: tuple[Any, ...] | None = None
    responses: list[object] = []
    responded = 0

    async def end(w: World) -> None:
        nonlocal before, responded
        for _ in range(3):
            await asyncio.sleep(0)  # a response that was given before the end arrives
        responded = len(responses)
        w.term.gate.end("a test")
        before = state(w)

    async def call(w: World) -> None:
        responses.append(await event(w))

    async with world(1, 2, 3, 4) as w:
        await prepared(w)
        Interruption(w, number, end)
        with suppress(NotController):
            await (call if is_call else event)(w)
        await w.settle()
        if before is None:
            return False
        await w.active.ended()
        await asyncio.sleep(1.0)
        assert state(w) == before, f"at request {number}"
        assert len(responses) == responded, f"a call has a response although the term ended at request {number}"
        assert w.wires.sent_while_closed == 0
        return True


@pytest.mark.parametrize("name", [*CALLS, *EVENTS])
@in_exact_time
async def test_a_term_that_ends_at_any_request_of_a_handler_does_nothing_more(name: str) -> None:
    event = CALLS.get(name) or EVENTS[name]
    number = 1
    while await ended_at(number, event, is_call=name in CALLS):
        number += 1
    assert number > 1
