"""The one queue: order, collapsing, its bound, and what becomes of those who wait when the term ends."""

from __future__ import annotations

import asyncio

import pytest

from brokers.listener.controller_listener import NotController
from brokers.wire.calls import AllocateProducerIdsCall
from brokers.wire.replies import AllocateProducerIdsReply
from controller.kafka.path.events import Event, EventKind, EventQueue, QueueFull
from controller.kafka.requests.calls import Calls, PendingProducerIds


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
