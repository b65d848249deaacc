"""The daemon dies before and after each of its writes, in every handler; the next term ends where a clean run does.

Each scenario says what is there, what happens, and what the brokers do again because nobody answered. Once all is
settled every event is handled once more, which must not write anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from brokers.listener.controller_listener import NotController
from controller.kafka.path.events import EventKind
from metadata_store import paths
from metadata_store.port import Kill
from state_machines.model.types import TopicPartition
from tests.kit.deadlines import in_virtual_time
from tests.kit.kafka.calls import create, created, grow, topic
from tests.kit.kafka.parts import DAEMON
from tests.kit.kafka.world import KafkaWorld, world

Act = Callable[[KafkaWorld], Awaitable[None]]
REASSIGNMENTS = (
    EventKind.REASSIGN_PARTITIONS,
    EventKind.ADVANCE_REASSIGNMENTS,
    EventKind.FINISH_REASSIGNMENTS,
    EventKind.REASSIGNED_STATES,
)


async def nothing(_: KafkaWorld) -> None: ...


class Scenario(NamedTuple):
    """``before`` the term, ``act`` in it, ``again`` after the next one began. ``failover``: the term's start is it.

    ``may_be_missed``: where nothing was decided yet, there is nothing left to decide (a broker that is back already).
    """

    name: str
    before: Act
    act: Act = nothing
    again: Act = nothing
    failover: bool = False
    may_be_missed: bool = False
    ibp: str = "3.9"


# -- what is there


async def three_topics(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2, 3), (2, 3, 1), (3, 1, 2), leaders=True)
    await w.topic("single", (1,), leaders=True)


async def everything_undone(w: KafkaWorld) -> None:
    """All that a term begins with: dead leaders, new topics to mend, notifications, no /feature."""
    await three_topics(w)
    await w.topic("new", (1, 2), (2, 3))
    await w.topic("no-id", (2, 3), topic_id=None)
    await w.topic("phantom", (2, DAEMON), topic_id=None)
    await w.topic("too-many", (1, 2, 3, DAEMON))
    await w.notify(TopicPartition("t", 0))
    w.die(1)


# -- what happens


async def broker_dies(w: KafkaWorld) -> None:
    w.die(1)
    await w.settle()


async def broker_bounces(w: KafkaWorld) -> None:
    await w.bounce(1)
    await w.settle()


async def broker_comes_back(w: KafkaWorld) -> None:
    await w.boot(1)
    await w.settle()


async def without_broker_1(w: KafkaWorld) -> None:
    await three_topics(w)
    w.die(1)


async def topics_appear(w: KafkaWorld) -> None:
    await w.topic("new", (1, 2), (2, 3))
    await w.topic("no-id", (2, 3), topic_id=None)
    await w.topic("phantom", (DAEMON, 2, 3), (3, DAEMON, 1), topic_id=None)
    await w.topic("too-many", (1, 2, 3, DAEMON))
    await w.settle()


async def topic_grows(w: KafkaWorld) -> None:
    await w.expand("t", (1, 2), (3, 1, DAEMON))
    await w.settle()


async def leader_notifies(w: KafkaWorld) -> None:
    await w.leader_writes("t", 0, (1, 2))
    await w.leader_writes("t", 1, (2, 3))
    await w.notify(TopicPartition("t", 0))
    await w.notify(TopicPartition("t", 1), TopicPartition("gone", 0))
    await w.settle()


async def leaders_ask(w: KafkaWorld) -> None:
    """The same requests every time, as a broker that got no answer sends them again."""
    if not hasattr(w, "asked"):
        w.asked = [w.proposal("t", 0, (1, 2)), w.proposal("t", 1, (2, 3))]  # type: ignore[attr-defined]
    first, second = w.asked  # type: ignore[attr-defined]
    await asyncio.gather(w.alter_partition(1, first), w.alter_partition(2, second))
    await w.settle()


async def broker_stops(w: KafkaWorld) -> None:
    await w.controlled_shutdown(1)
    await w.settle()


async def follower_is_kept_out(w: KafkaWorld) -> None:
    """The broker follows on where it led, until its leader is refused to have it in the ISR."""
    await w.controlled_shutdown(1)
    held = w.states["t", 0]
    await w.alter_partition(held.leader, w.proposal("t", 0, (*held.isr, 1)))
    await w.settle()


async def topics_are_deleted(w: KafkaWorld) -> None:
    """Two that exist, and one that never did."""
    await w.mark("t", "single", "never-was")
    await w.propagated()


async def deleted_while_a_broker_is_down(w: KafkaWorld) -> None:
    await w.mark("t")
    await w.propagated()
    await w.expand("t", (2, 3))
    await w.propagated()
    await broker_is_there(w)


async def broker_is_there(w: KafkaWorld) -> None:
    if 1 not in w.brokers:
        await w.boot(1)
    await w.propagated()


async def administrator_asks(w: KafkaWorld) -> None:
    if w.node(paths.topic("t")) is not None:
        await w.delete_topics("t")
    await w.propagated()


async def client_creates(w: KafkaWorld) -> None:
    """The same call every time, as the admin endpoint sends it again to whoever holds the role then."""
    asked = create(topic("new", -1, -1, (1, 2), (2, 3)), topic("set", -1, -1, (3, 1), retention_ms="5"))
    assert await created(w, asked, attempt=getattr(w, "tried", 0)) == {"new": 0, "set": 0}
    await w.settle()


async def client_grows(w: KafkaWorld) -> None:
    assert await created(w, grow("t", 5), attempt=getattr(w, "tried", 0)) == {"t": 0}
    await w.settle()


def tried_again(act: Act) -> Act:
    async def again(w: KafkaWorld) -> None:
        w.tried = 1  # type: ignore[attr-defined]
        await act(w)

    return again


SCENARIOS = [
    Scenario("failover", everything_undone, failover=True),
    Scenario("failover at IBP 2.7-IV1", everything_undone, failover=True, ibp="2.7-IV1"),
    Scenario("broker death", three_topics, broker_dies),
    Scenario("broker bounce", three_topics, broker_bounces, may_be_missed=True),
    Scenario("broker return", without_broker_1, broker_comes_back),
    Scenario("topics appear", three_topics, topics_appear),
    Scenario("a topic grows", three_topics, topic_grows),
    Scenario("ISR notifications", three_topics, leader_notifies, ibp="2.7-IV1"),
    Scenario("AlterPartition", three_topics, leaders_ask, leaders_ask),
    Scenario("controlled shutdown", three_topics, broker_stops, broker_stops),
    Scenario("a follower is kept out of its ISR", three_topics, follower_is_kept_out, follower_is_kept_out),
    Scenario("topic deletion", three_topics, topics_are_deleted),
    Scenario("deletion with a broker down", without_broker_1, deleted_while_a_broker_is_down, broker_is_there),
    Scenario("DeleteTopics", three_topics, administrator_asks, administrator_asks),
    Scenario("CreateTopics", three_topics, client_creates, tried_again(client_creates)),
    Scenario("CreatePartitions", three_topics, client_grows, tried_again(client_grows)),
]


# -- the runs


@asynccontextmanager
async def first_term(scenario: Scenario, number: int, when: str) -> AsyncIterator[KafkaWorld]:
    """The scenario up to where the daemon dies, or to its end if ``number`` is beyond the last write."""
    async with world() as w:
        await scenario.before(w)
        seat = await w.seat()
        if scenario.failover:
            seat.script.kill_at(number, when)
        try:
            await seat.begin(scenario.ibp)
            await w.settle()
            if not scenario.failover:
                seat.script.kill_at(number, when)
                await scenario.act(w)
        except (Kill, NotController):
            pass
        yield w


async def outcome(w: KafkaWorld) -> dict[str, Any]:
    """What counts in the end; epochs and versions may differ by what was done twice."""
    names = w.assignments()
    parents = (paths.DELETE_TOPICS, paths.ISR_CHANGES, paths.LOG_DIR_EVENTS, f"{paths.CONFIG}/topics", paths.ADMIN)
    feature = w.node(paths.FEATURE)
    return {
        "led": w.leaders(),
        "assigned": names,
        "below": sorted(path for path in w.server.tree._nodes if path.startswith(paths.TOPICS)),
        "with id": {name for name in names if w.assignment(name).topic_id is not None},
        "children": {parent: w.children(parent) for parent in parents},
        "feature": feature.data if feature is not None else None,
    }


async def next_term(scenario: Scenario, w: KafkaWorld) -> dict[str, Any]:
    """A new daemon takes over from what ZooKeeper holds; brokers ask again; then all is handled once more."""
    await w.seats[-1].crash()
    seat = await w.seat()
    await seat.begin(scenario.ibp)
    await w.settle()
    await w.propagated()
    await scenario.again(w)
    await w.propagated()
    w.agreed()
    assert not w.term.gate.ended
    found = await outcome(w)
    await once_more(w)
    return found


async def once_more(w: KafkaWorld) -> None:
    """Every level-triggered event again: nothing is written."""
    zxid = w.server.tree.zxid
    for kind in (
        EventKind.BROKER_CHANGE,
        EventKind.TOPIC_CHANGE,
        EventKind.TOPIC_DELETION,
        EventKind.ISR_NOTIFICATION,
        EventKind.LOG_DIR_EVENT,
        EventKind.RECONNECTED,
    ):
        w.term.queue.signal(kind)
    for kind in (EventKind.PREFERRED_ELECTION, EventKind.CONFIG_CHANGE, *REASSIGNMENTS):
        w.term.queue.signal(kind)
    for name in w.assignments():
        w.term.queue.signal(EventKind.PARTITION_MODIFICATIONS, name)
    await w.settle()
    assert w.server.tree.zxid == zxid, "handled twice, it writes"
    w.agreed()


def deaths(writes: int) -> Iterator[tuple[int, str]]:
    for number in range(1, writes + 1):
        yield number, "before"
        yield number, "after"


@pytest.mark.seed("S4-65", "S4-86")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
@in_virtual_time
async def test_killed_before_and_after_every_write(scenario: Scenario) -> None:
    await ends_as_a_clean_run(scenario)


async def ends_as_a_clean_run(scenario: Scenario) -> None:
    """Whichever write the daemon dies at, before or after it."""
    async with first_term(scenario, 10_000, "") as w:
        writes = len(w.active.script.writes)
        assert not w.term.gate.ended
        w.agreed()
        clean = await outcome(w)
        await once_more(w)
        assert await next_term(scenario, w) == clean, "a term after a clean one changes nothing"
    assert writes
    for number, when in deaths(writes):
        async with first_term(scenario, number, when) as w:
            untouched = await outcome(w)
            found = await next_term(scenario, w)
            assert found == clean or (scenario.may_be_missed and found == untouched), f"killed {when} write {number}"


@pytest.mark.seed("S4-87")
@in_virtual_time
async def test_a_block_of_producer_ids_is_never_handed_out_twice() -> None:
    for when in ("before", "after"):
        async with world() as w:
            await w.begin_term()
            blocks = [(await w.producer_ids(1)).start]
            w.active.script.kill_at(1, when)
            with pytest.raises(NotController):
                await w.producer_ids(2)
            await w.active.crash()
            await w.begin_term()
            blocks += [(await w.producer_ids(broker)).start for broker in (2, 3, 1)]
            assert len(set(blocks)) == 4
            skipped = when == "after"
            assert sorted(blocks) == [0, *range(1000 + 1000 * skipped, 4000 + 1000 * skipped, 1000)]
