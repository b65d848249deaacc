"""The one queue and the table of events: order, collapsing, bounds; every kind has a row, and every watch one kind."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from brokers.listener.controller_listener import NotController
from brokers.wire.calls import AllocateProducerIdsCall
from brokers.wire.messages import CARRIED
from brokers.wire.replies import AllocateProducerIdsReply
from controller.kafka.metrics.exposition import KafkaState
from controller.kafka.path.events import Event, EventKind, EventQueue, QueueFull
from controller.kafka.requests.calls import AS_CARRIED, Calls, PendingProducerIds
from controller.kafka.requests.codec import TRANSLATIONS
from controller.kafka.term.dispatch import EVENTS, HANDLERS, RAISED, REREAD, Watched, changed, controller_state
from metadata_store import paths
from metadata_store.nodes.cordon_node import PATH as CORDONS
from metadata_store.nodes.endpoint_znode import endpoint_path
from metadata_store.nodes.pause_node import PATH as PAUSE
from metadata_store.port import WatchEvent, WatchKind


async def taken(queue: EventQueue) -> list[tuple[EventKind, object]]:
    """Everything that waits, in order."""
    found = []
    while len(queue):
        event = await queue.next()
        found.append((event.kind, event.detail))
    return found


@pytest.mark.seed("S4-75")
async def test_first_in_first_out_whatever_the_kind() -> None:
    queue = EventQueue()
    queue.signal(EventKind.BROKER_CHANGE)
    queue.post(Event(EventKind.CONTROLLED_SHUTDOWN, 1))
    queue.signal(EventKind.TOPIC_CHANGE)
    queue.post(Event(EventKind.CONTROLLED_SHUTDOWN, 2))
    assert await taken(queue) == [
        (EventKind.BROKER_CHANGE, None),
        (EventKind.CONTROLLED_SHUTDOWN, 1),
        (EventKind.TOPIC_CHANGE, None),
        (EventKind.CONTROLLED_SHUTDOWN, 2),
    ]


async def test_level_triggered_events_collapse_while_they_wait_and_only_then() -> None:
    queue = EventQueue()
    for _ in range(3):
        queue.signal(EventKind.PARTITION_MODIFICATIONS, "a")
        queue.signal(EventKind.PARTITION_MODIFICATIONS, "b")
        queue.signal(EventKind.TOPIC_CHANGE)
    assert len(queue) == 3
    assert (await queue.next()).detail == "a"
    queue.signal(EventKind.PARTITION_MODIFICATIONS, "a")
    assert await taken(queue) == [
        (EventKind.PARTITION_MODIFICATIONS, "b"),
        (EventKind.TOPIC_CHANGE, None),
        (EventKind.PARTITION_MODIFICATIONS, "a"),
    ]


async def test_calls_are_bounded_and_signals_of_watches_always_fit() -> None:
    queue = EventQueue(events_max=2)
    queue.post(Event(EventKind.CONTROLLED_SHUTDOWN, 1))
    queue.signal(EventKind.TOPIC_CHANGE)
    with pytest.raises(QueueFull, match="2 events wait"):
        queue.post(Event(EventKind.CONTROLLED_SHUTDOWN, 2))
    queue.signal(EventKind.BROKER_CHANGE)
    assert len(queue) == 3
    await taken(queue)
    queue.post(Event(EventKind.CONTROLLED_SHUTDOWN, 3))


async def test_a_caller_beyond_the_bound_looks_for_the_controller_again() -> None:
    queue = EventQueue(events_max=0)
    with pytest.raises(NotController):
        await Calls(queue).allocate_producer_ids(AllocateProducerIdsCall(0, 1, 1))


async def test_the_consumer_waits_for_the_first_event() -> None:
    queue = EventQueue()
    waiting = asyncio.create_task(queue.next())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.signal(EventKind.TOPIC_CHANGE)
    queue.signal(EventKind.BROKER_CHANGE)
    assert (await waiting).kind == EventKind.TOPIC_CHANGE
    assert (await queue.next()).kind == EventKind.BROKER_CHANGE


async def test_only_directly_following_events_of_a_kind_are_drained() -> None:
    queue = EventQueue()
    for number in range(6):
        queue.post(Event(EventKind.ALTER_PARTITION, number))
    queue.signal(EventKind.TOPIC_CHANGE)
    queue.post(Event(EventKind.ALTER_PARTITION, 6))
    first = (await queue.next()).detail
    assert queue.following(EventKind.ALTER_PARTITION, first, 3) == [0, 1, 2]
    first = (await queue.next()).detail
    assert queue.following(EventKind.ALTER_PARTITION, first, 10) == [3, 4, 5]
    assert queue.following(EventKind.ALTER_PARTITION, 7, 10) == [7]
    assert (await queue.next()).kind == EventKind.TOPIC_CHANGE


async def test_no_more_is_drained_than_fits_into_one_turn() -> None:
    queue = EventQueue()
    for size in (4, 5, 9, 1):
        queue.post(Event(EventKind.CREATE_TOPICS, "x" * size))
    first = (await queue.next()).detail
    assert [len(str(d)) for d in queue.following(EventKind.CREATE_TOPICS, str(first), 10, len, 10)] == [4, 5, 9]
    assert len(queue) == 1


@pytest.mark.kafka(
    "ControllerIntegrationTest.testPreemptionOnControllerShutdown",
    "ControllerIntegrationTest.testPreemptionWithCallbacks",
)
async def test_waiting_and_later_calls_are_refused_at_once_when_the_term_ends() -> None:
    """KAFKA-10193: who is not told hangs until its own time-out."""
    queue = EventQueue()
    early = asyncio.create_task(Calls(queue).allocate_producer_ids(AllocateProducerIdsCall(0, 1, 1)))
    queue.signal(EventKind.TOPIC_CHANGE)
    await asyncio.sleep(0)
    assert len(queue) == 2
    queue.close()
    with pytest.raises(NotController):
        await early
    with pytest.raises(NotController):
        await Calls(queue).allocate_producer_ids(AllocateProducerIdsCall(0, 1, 1))
    queue.signal(EventKind.TOPIC_CHANGE)
    assert len(queue) == 0


async def test_a_call_that_was_cancelled_takes_no_response() -> None:
    pending = PendingProducerIds(AllocateProducerIdsCall(0, 1, 1))
    pending.reply.cancel()
    pending.answer(AllocateProducerIdsReply(0))
    pending.refuse()
    assert pending.reply.cancelled()


async def test_the_first_response_stays() -> None:
    pending = PendingProducerIds(AllocateProducerIdsCall(0, 1, 1))
    pending.answer(AllocateProducerIdsReply(0, 5_000, 1_000))
    pending.refuse()
    assert (await pending.reply).start == 5_000


async def test_a_queue_that_refuses_calls_keeps_everything_else_and_takes_calls_behind_it() -> None:
    queue, refused = EventQueue(), list[int]()

    def call(number: int) -> Event:
        return Event(EventKind.CONTROLLED_SHUTDOWN, number, preempt=lambda: refused.append(number))

    queue.post(call(1))
    queue.signal(EventKind.BROKER_CHANGE)
    queue.post(call(2))
    queue.post(Event(EventKind.SETTLED, "kept", key="kept", preempt=lambda: refused.append(0)))
    queue.refuse_calls()
    assert (refused, len(queue)) == ([1, 2], 2)
    queue.post(call(3))
    queue.signal(EventKind.TOPIC_CHANGE)
    assert refused == [1, 2, 3]
    queue.take_calls()
    queue.post(call(4))
    assert await taken(queue) == [
        (EventKind.BROKER_CHANGE, None),
        (EventKind.SETTLED, "kept"),
        (EventKind.TOPIC_CHANGE, None),
        (EventKind.CONTROLLED_SHUTDOWN, 4),
    ]


DAEMON = 1_000_001
STATE = paths.state("t", 3)

ZNODES: list[tuple[str, list[tuple[EventKind, str | None]]]] = [
    (paths.BROKER_IDS, [(EventKind.BROKER_CHANGE, None)]),
    (paths.broker(7), [(EventKind.BROKER_CHANGE, None)]),
    (paths.TOPICS, [(EventKind.TOPIC_CHANGE, None)]),
    (paths.topic("t"), [(EventKind.PARTITION_MODIFICATIONS, "t")]),
    (STATE, [(EventKind.REASSIGNED_STATE, None)]),
    (paths.DELETE_TOPICS, [(EventKind.TOPIC_DELETION, None)]),
    (paths.ISR_CHANGES, [(EventKind.ISR_NOTIFICATION, None)]),
    (paths.REASSIGN_PARTITIONS, [(EventKind.REASSIGN_PARTITIONS, None)]),
    (paths.LOG_DIR_EVENTS, [(EventKind.LOG_DIR_EVENT, None)]),
    (paths.PREFERRED_ELECTION, [(EventKind.PREFERRED_ELECTION, None)]),
    (paths.CONFIG_CHANGES, [(EventKind.CONFIG_CHANGE, None)]),
    (paths.topic_config("t"), [(EventKind.CONFIG_CHANGE, None)]),
    (endpoint_path(DAEMON), [(EventKind.ENDPOINT_CHANGE, None)]),
    (CORDONS, [(EventKind.CORDON_CHANGE, None)]),
    (PAUSE, [(EventKind.PAUSE_CHANGE, None)]),
    ("/kafka-acl-changes", [(EventKind.ACL_CHANGE, "/kafka-acl-changes")]),
    (paths.CONTROLLER, []),
]


def raised(path: str, kind: WatchKind = WatchKind.CHANGED, *, repaired: bool = False) -> list[tuple[str, str | None]]:
    found = changed(WatchEvent(path, kind), DAEMON, repaired=repaired)
    return [(RAISED[watched], detail) for watched, detail in found]


def test_every_kind_has_a_row() -> None:
    assert EVENTS.keys() == set(EventKind)
    own = {EventKind.FAILOVER, EventKind.RECONNECTED, EventKind.PROCEDURES}
    assert set(EventKind) - HANDLERS.keys() == own, "the term's own"


def test_every_watch_raises_one_kind() -> None:
    assert Counter(row.watch for row in EVENTS.values() if row.watch is not None) == Counter(Watched)


@pytest.mark.parametrize(("path", "expected"), ZNODES, ids=[path for path, _ in ZNODES])
def test_a_watch_raises_the_event_that_reads_the_znode(path: str, expected: list[tuple[str, str | None]]) -> None:
    assert raised(path) == expected


def test_a_topic_that_is_deleted_is_missed_in_the_list_of_topics() -> None:
    assert raised(paths.topic("t"), WatchKind.DELETED) == [
        (EventKind.TOPIC_CHANGE, None),
        (EventKind.PARTITION_MODIFICATIONS, "t"),
    ]


def test_a_state_znode_that_was_malformed_is_read_singly() -> None:
    assert raised(STATE, repaired=True) == [(EventKind.REPAIRED_STATE, STATE)]


def test_registrations_are_read_first_after_a_reconnect() -> None:
    """Elections after it know which brokers are live."""
    assert REREAD[0] is EventKind.BROKER_CHANGE
    unwatched = {EventKind.PARTITION_MODIFICATIONS, EventKind.REASSIGNED_STATE, EventKind.REPAIRED_STATE}
    assert set(REREAD) == set(RAISED.values()) - unwatched | {EventKind.REASSIGNED_STATES}


def test_every_carried_call_waits_in_one_kind_of_event() -> None:
    assert AS_CARRIED.keys() | TRANSLATIONS.keys() == CARRIED
    assert not AS_CARRIED.keys() & TRANSLATIONS.keys()
    kinds = [*AS_CARRIED.values(), *(translation.kind for translation in TRANSLATIONS.values())]
    assert len(set(kinds)) == len(CARRIED)
    assert set(kinds) <= HANDLERS.keys()


@pytest.mark.kafka("ControllerEventManagerTest.testEventWithoutRateMetrics")
def test_the_state_of_kafkas_controller_while_an_event_is_handled() -> None:
    assert controller_state(None) == controller_state(EventKind.LOST_IDS) == 0
    assert controller_state(EventKind.FAILOVER) == 1
    assert controller_state(EventKind.CONTROLLED_SHUTDOWN) == 8
    assert len({state.timer for state in KafkaState}) == len({state.number for state in KafkaState}) == 16
