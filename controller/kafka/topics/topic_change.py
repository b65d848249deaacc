"""Handles new and vanished topics, and added partitions (S4-39..S4-43, S4-79, S4-85, S4-88).

A topic is started only from a znode that was read back or written by us, after
:mod:`controller.kafka.topics.repair`. A term may find partitions with a history late: restored by hand, or not readable
before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Final

from controller.kafka.journal.report import Reason
from controller.kafka.path.controller import Controller
from controller.kafka.path.events import EventKind
from controller.kafka.path.gate import TermEnded
from controller.kafka.reassignments.reassignment import go_on
from controller.kafka.topics.deletion import take_back
from controller.kafka.topics.ghosts import end_vanished, remove_vanished
from controller.kafka.topics.lost_ids import inquire_of_new
from controller.kafka.topics.repair import Load, State, States, note_running, read_new, repair
from controller.process.wording import abbreviate
from metadata_store import paths
from metadata_store.codecs.base import MalformedNode
from metadata_store.errors import NotConnected, OutcomeUnknown
from state_machines.decisions.failover import take_up
from state_machines.decisions.topic_change import new_partitions
from state_machines.model.topic_facts import StatesRead, TopicIdRead, TopicRead
from state_machines.model.types import PartitionState, TopicAssignment, TopicPartition
from state_machines.portions import portions

ENDED_ROWS_MAX: Final = 500_000
"""Rows of vanished topics, about 140 bytes each, that a term keeps beside as many live ones."""
RENEWED: Final = "renewed: most partitions in memory are of vanished topics, the next term begins without them"
TOPICS_MAX: Final = 500
"""Topics that are read and started together."""
STARTED_MAX: Final = 10_000
"""Partitions of new topics at which no further topics are brought in with them."""
TURN_ROWS: Final = 4_000
"""Partitions that are started in one turn of the loop, of one topic or of many: some 60 ms."""
PARTITIONS_MAX: Final = 20_000
"""Partitions of changed topics, as in the model, at which no further topics are read with them."""

log = logging.getLogger("regent.controller")
LATE_ROWS: Final = 10_000
"""Late partitions in one decision, which is one turn of the loop."""


async def topic_change(c: Controller) -> None:
    """Starts new topics and removes vanished ones: the children of ``/brokers/topics`` changed."""
    since = c.zk.last_zxid
    listed = await c.zk.children(paths.TOPICS)
    await c.zk.watch(children=[paths.TOPICS], since_zxid=since)
    c.gate.check()
    found = set(listed[0]) if listed is not None else set()
    known = set(c.cluster.topic_index)
    c.unread_topics.intersection_update(found)
    gone = sorted(known - found)
    if gone:
        partitions = await remove_vanished(c, gone)
        log.info("%s: gone from ZooKeeper, %d partitions are forgotten", abbreviate(gone), partitions)
    await start_topics(c, sorted(found - known))
    if c.cluster.ended > max(ENDED_ROWS_MAX, c.cluster.present):
        raise TermEnded(RENEWED)


async def partition_modifications(c: Controller, name: str) -> None:
    """Reads a changed topic znode together with those whose events directly follow."""
    kind = EventKind.PARTITION_MODIFICATIONS
    names = c.queue.following(kind, name, TOPICS_MAX, partial(_partitions, c), PARTITIONS_MAX)
    try:
        await modified(c, names)
    except (NotConnected, OutcomeUnknown):
        for taken in names[1:]:
            c.queue.signal(EventKind.PARTITION_MODIFICATIONS, taken)
        raise


def _partitions(c: Controller, name: str) -> int:
    topic = c.cluster.topic(name)
    return 0 if topic is None else len(topic.rows)


async def modified(c: Controller, names: list[str]) -> None:
    """Starts added partitions, or takes them back from a topic in deletion; a recreated topic is a new incarnation."""
    since = c.zk.last_zxid
    found = await c.store.load_topics(names)
    c.gate.check()
    changed: list[TopicAssignment] = []
    queued: list[TopicAssignment] = []
    recreated: list[str] = []
    watched: list[str] = []
    for name, topic in zip(names, found, strict=True):
        known = c.cluster.topic(name)
        if isinstance(topic, MalformedNode):
            c.malformed(topic)
            watched.append(paths.topic(name))
        elif topic is None or known is None:
            await remove_vanished(c, [name])
            c.queue.signal(EventKind.TOPIC_CHANGE)
        elif topic.czxid != known.czxid:
            await remove_vanished(c, [name])
            recreated.append(name)
        else:
            (queued if known.index in c.cluster.deletions else changed).append(topic)
            watched.append(paths.topic(name))
    if watched:
        await c.zk.watch(data=watched, since_zxid=since)
        for topic in queued:  # a reassignment that its deletion waits for needs the id, too
            c.enter(TopicIdRead(topic.name, topic.topic_id))
        await take_back(c, queued)
        await start(c, changed)
    await start_topics(c, recreated)


async def start_topics(c: Controller, names: list[str]) -> None:
    """Reads topics that the model does not have, and starts their partitions, some at a time."""
    for at in range(0, len(names), TOPICS_MAX):
        await _start_topics(c, names[at : at + TOPICS_MAX])


async def _start_topics(c: Controller, names: list[str]) -> None:
    since = c.zk.last_zxid
    topics: list[TopicAssignment] = []
    for found in await c.store.load_topics(names):
        if isinstance(found, MalformedNode):
            c.malformed(found)
        elif found is not None:
            topics.append(found)
    await c.zk.watch(data=[paths.topic(name) for name in names], since_zxid=since)
    while topics:
        some = _some(topics)
        del topics[: len(some)]
        await start(c, some)


def _some(topics: list[TopicAssignment]) -> list[TopicAssignment]:
    """Takes the first topics, until their partitions are enough for one turn of the loop."""
    partitions = 0
    for number, topic in enumerate(topics, 1):
        partitions += len(topic.partitions)
        if partitions >= STARTED_MAX:
            return topics[:number]
    return list(topics)


async def start(c: Controller, topics: list[TopicAssignment]) -> None:
    """Brings topics in, propagates partitions that run already, and elects leaders for the others."""
    rows, states = await bring_in(c, topics)
    await asyncio.sleep(0)
    inquire_of_new(c)
    end_vanished(c, topics)
    if not c.deletion_queue.markers.isdisjoint(topic.name for topic in topics):
        c.queue.signal(EventKind.TOPIC_DELETION)
    with c.channels.more_coming() if len(rows) > TURN_ROWS else nullcontext():
        for some in portions(list(zip(rows, states, strict=True)), TURN_ROWS):
            await _start_some(c, some)


async def _start_some(c: Controller, some: Sequence[tuple[int, State]]) -> None:
    """Propagates rows that have a state znode, and creates those of the others, with a leader each."""
    found = [(i, state) for i, state in some if not isinstance(state, MalformedNode)]
    c.enter(StatesRead([(i, state) for i, state in found if state is not None]))
    waiting = [i for i, _ in found if c.cluster.rows[i].state is not PartitionState.ONLINE and i not in c.late]
    if waiting:
        topics = {c.cluster.rows[i].topic for i in waiting}
        why = f"{len(waiting)} new partitions of {abbreviate(sorted(c.cluster.topics[t].name for t in topics))}"
        await c.carry_out(partial(new_partitions, rows=waiting), Reason.NEW_TOPIC, why)
    else:
        await asyncio.sleep(0)


async def bring_in(
    c: Controller, topics: list[TopicAssignment], *, loaded: bool = False
) -> tuple[list[int], list[State]]:
    """Enters topics into the model, repaired where needed; returns the new rows and the state znodes read for them.

    ``loaded``: at the begin of a term. The model changes only after the last read and write: where the connection is
    lost before, the event is repeated.
    """
    states: States = {}
    await read_new(c, topics, states)
    await asyncio.sleep(0)
    load = Load(c, topics)
    repaired = await repair(c, topics, states, load)
    note_running(c, repaired, states)
    rows: list[int] = []
    found: list[State] = []
    for topic in repaired:
        c.unread_topics.discard(topic.name)
        if topic.name in c.cluster.topic_index:
            c.enter(TopicIdRead(topic.name, topic.topic_id))
        added, read = c.enter(TopicRead(topic, loaded)).rows, states[topic.name]
        rows += added
        found += [read[c.cluster.rows[i].partition] for i in added]
    return rows, found


async def late_partitions(c: Controller) -> None:
    """Writes another leader epoch for each, or a new leader where its own is gone, and sends that to brokers.

    Reassignments of these partitions go on from the present ISR.
    """
    rows = sorted(c.late)
    c.late.clear()
    for at in range(0, len(rows), LATE_ROWS):
        some = rows[at : at + LATE_ROWS]
        names = abbreviate(sorted({c.cluster.name(i).topic for i in some}))
        decide = partial(take_up, rows=some, unclean=c.unclean)
        await c.carry_out(decide, Reason.TAKEN_UP, f"{len(some)} partitions of {names} are taken up")
    moving = [i for i in rows if i in c.cluster.reassigning]
    await go_on(c, moving, f"{len(moving)} reassignments go on", again=True)


async def repaired_state(c: Controller, path: str) -> None:
    """Reads the state znode; one that is still malformed stays watched."""
    name = paths.partition_of_state(path)
    row = c.cluster.find(*name) if name is not None else None
    if name is None or row is None:
        return
    [found] = await c.read_states([TopicPartition(*name)])
    if isinstance(found, MalformedNode):
        return
    if found is not None:
        c.enter(StatesRead([(row, found)]))
        c.take_up([row])
    elif _is_unread(c, row):
        decide = partial(new_partitions, rows=[row])
        await c.carry_out(decide, Reason.NEW_TOPIC, f"{path} can be created again")


def _is_unread(c: Controller, row: int) -> bool:
    found = c.cluster.rows[row]
    return found.state is PartitionState.NON_EXISTENT and found.topic not in c.cluster.deletions
