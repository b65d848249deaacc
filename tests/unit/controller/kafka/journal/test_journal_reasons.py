"""The reason of each decision in the journal, by the event."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from controller.kafka.journal.report import Reason
from controller.kafka.kinds.drain import NAME, encode_drain
from state_machines.decisions.drain import Drain
from state_machines.decisions.leader_election import ElectionType
from state_machines.procedures.record import Caller
from tests.kit.controller_world import World, in_world
from tests.kit.reassignment_kit import alter


async def a_leader_dies(w: World) -> None:
    w.die(1)


async def the_only_replica_returns(w: World) -> None:
    w.die(3)
    await w.propagated()
    await w.boot(3)


async def a_broker_shuts_down(w: World) -> None:
    await w.controlled_shutdown(1)


async def a_topic_appears(w: World) -> None:
    await w.topic("new", (1,))


async def a_leader_shrinks_its_isr(w: World) -> None:
    await w.alter_partition(1, w.proposal("t", 0, isr=(1, 2)))


async def a_term_begins_without_a_leader(w: World) -> None:
    await w.active.crash()
    w.die(1)
    await w.begin_term()


async def a_partition_with_a_history_appears(w: World) -> None:
    row = w.term.cluster.find("t", 0)
    assert row is not None
    w.term.controller.take_up([row])


async def a_replica_is_added(w: World) -> None:
    assert await alter(w, {("alone", 0): (3, 2)}) == {}


async def a_preferred_leader_is_elected(w: World) -> None:
    assert await w.elect(ElectionType.PREFERRED, ("other", 0)) == {("other", 0): 0}


async def an_unclean_election_is_allowed(w: World) -> None:
    w.die(2)
    await w.propagated()
    await w.configure("topics", "behind", unclean_leader_election_enable="true")


async def a_log_directory_fails(w: World) -> None:
    w.wires.lost[1] = {("t", 0)}
    await w.log_directory_fails(1)


async def a_topic_is_deleted(w: World) -> None:
    await w.delete_topics("alone")


async def a_broker_is_drained(w: World) -> None:
    await w.term.procedures.engine.submit(NAME, encode_drain(Drain((1,))), Caller())


EVENTS: dict[Reason, Callable[[World], Awaitable[None]]] = {
    Reason.BROKER_FAILURE: a_leader_dies,
    Reason.BROKER_RETURN: the_only_replica_returns,
    Reason.CONTROLLED_SHUTDOWN: a_broker_shuts_down,
    Reason.NEW_TOPIC: a_topic_appears,
    Reason.ISR_BY_LEADER: a_leader_shrinks_its_isr,
    Reason.FAILOVER: a_term_begins_without_a_leader,
    Reason.TAKEN_UP: a_partition_with_a_history_appears,
    Reason.REASSIGNMENT: a_replica_is_added,
    Reason.ELECTION: a_preferred_leader_is_elected,
    Reason.UNCLEAN_ALLOWED: an_unclean_election_is_allowed,
    Reason.LOG_DIRECTORY: a_log_directory_fails,
    Reason.DELETION: a_topic_is_deleted,
    Reason.DRAIN: a_broker_is_drained,
}


@pytest.mark.parametrize("reason", Reason)
@in_world(1, 2, 3)
async def test_a_row_has_the_reason_of_its_event(w: World, reason: Reason) -> None:
    await w.topic("t", (1, 2, 3), leaders=True)
    await w.topic("alone", (3,), leaders=True)
    await w.topic("other", (1, 2), leaders=True, led_by=2)
    await w.topic("behind", (2, 3), leaders=True, isr=(2,))
    await w.serve()
    before = len(w.book.read())
    await EVENTS[reason](w)
    await w.propagated()
    assert reason.value in {row.reason for row in w.book.read()[before:]}


def test_rows_of_the_journal_keep_their_words() -> None:
    assert [reason.value for reason in Reason] == [
        *("broker_failure", "broker_return", "controlled_shutdown", "new_topic", "isr_by_leader", "failover"),
        *("taken_up", "reassignment", "election", "unclean_allowed", "log_directory", "deletion", "drain"),
    ]
