"""Requests to brokers and clients' elections in the journal: a row each, never one for each partition."""

from __future__ import annotations

from brokers.outbound.delivery import Delivered
from brokers.wire.versions import Api
from controller.journal.query import entity, sentence
from controller.kafka.journal.term_journal import KafkaJournal
from state_machines.decisions.leader_election import ElectionType
from state_machines.journal.events import Kind, Row
from tests.kit.controller_world import World, in_world
from tests.kit.journal_kit import Book


async def running(w: World) -> None:
    await w.topic("t", (1, 2, 3), (2, 3, 1), (3, 1, 2), leaders=True)
    await w.begin_term()
    await w.propagated()


def requests(w: World) -> list[Row]:
    return [row for row in w.book.read() if row.kind == Kind.RPC_BATCH]


@in_world(before=running)
async def test_each_acknowledged_request_has_its_broker_epoch_its_size_and_its_times(w: World) -> None:
    found = requests(w)
    assert {row.api for row in found} >= {"LEADER_AND_ISR", "UPDATE_METADATA"}
    assert {(row.broker, row.broker_epoch) for row in found} == {
        (broker.id, broker.epoch) for broker in w.term.cluster.brokers.values()
    }
    assert {row.partitions for row in found if row.api == "LEADER_AND_ISR"} == {3}, "one row for all partitions"
    assert all((row.t_sent or 0) <= (row.t_acknowledged or 0) for row in found)
    assert {row.err for row in found} == {None}


@in_world(before=running)
async def test_a_request_that_its_broker_never_acknowledged_is_given_up_with_it(w: World) -> None:
    before = len(requests(w))
    w.term.channels._shared.on_request(Delivered(2, 12, Api.STOP_REPLICA, 5, 1.5, False, 0, "connection refused"))
    [row] = requests(w)[before:]
    assert (row.api, row.partitions, row.t_acknowledged) == ("STOP_REPLICA", 5, None)
    assert row.err == "given up: connection refused"
    assert row.mono_us - (row.t_sent or 0) == 1_500_000


@in_world(before=running)
async def test_a_clients_election_is_one_row_with_its_counts(w: World) -> None:
    await w.elect(ElectionType.PREFERRED, ("t", 0), ("t", 1), ("nowhere", 7))
    [row] = [row for row in w.book.read() if row.kind == Kind.CALL]
    assert (row.api, row.partitions, row.elected, row.refused) == ("ELECT_LEADERS", 3, 0, 3)
    assert sentence(row) == "ELECT_LEADERS of 3 partitions by a client: 0 elected, 3 refused"


def test_a_request_is_a_sentence() -> None:
    book = Book()
    book.term(7, 5, KafkaJournal).request(Delivered(2, 12, Api.LEADER_AND_ISR, 40, 0.25, error=11))
    [row] = book.read()
    assert entity(row) == "broker 2"
    text = sentence(row)
    assert text.startswith("LEADER_AND_ISR of 40 partitions to epoch 12 acknowledged in 250.0 ms: ")
    assert text.endswith("STALE_CONTROLLER_EPOCH (11)")
