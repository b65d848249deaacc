"""Topics come and go, partitions are added (S4-39..S4-43, S4-79, S4-85, S4-88).

What brokers wrote is mended before anything of it starts: a missing topic id (IBP 2.8 and later), or a daemon's id
among the replicas of an auto-created topic. A topic is started only from what was read back or written by us.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Sequence
from functools import partial

from controller.controller import Controller
from metadata_store import paths
from metadata_store.kafka_store import Malformed
from state_machines.decision import TopicChange
from state_machines.topic_change import names_any, new_partitions, repaired
from state_machines.types import Assignment, Leadership, PartitionState, TopicAssignment, TopicPartition

log = logging.getLogger("regent.controller")

MEND_ROUNDS_MAX = 3
REPAIRED = "a daemon's id among the replicas replaced by a broker's"
ID_GIVEN = "topic id given"

State = Leadership | Malformed | None
States = dict[TopicPartition, State]
"""State znodes of the partitions that the model does not have."""


async def topic_change(c: Controller) -> None:
    """Children of ``/brokers/topics`` changed: new topics are started, vanished ones forgotten."""
    since = c.zk.last_zxid
    listed = await c.zk.children(paths.TOPICS)
    await c.zk.watch(children=[paths.TOPICS], since_zxid=since)
    c.term.check()
    found = set(listed[0]) if listed is not None else set()
    known = set(c.cluster.topic_index)
    for name in sorted(known - found):
        rows = c.cluster.observe_topic_gone(name)
        log.info("topic %s is gone from ZooKeeper: its %d partitions are forgotten", name, len(rows))
    await start_topics(c, sorted(found - known))


async def partition_modifications(c: Controller, name: str) -> None:
    """The data of a topic znode changed: added partitions are started; a recreated topic is a new incarnation."""
    since = c.zk.last_zxid
    [found] = await c.store.load_topics([name])
    c.term.check()
    known = c.cluster.topic(name)
    if isinstance(found, Malformed):
        c.malformed(found)
        await c.zk.watch(data=[paths.topic(name)], since_zxid=since)
        return
    if found is None or known is None:
        c.cluster.observe_topic_gone(name)
        c.queue.signal("topic_change")
        return
    if found.czxid != known.czxid:
        c.cluster.observe_topic_gone(name)
        await start_topics(c, [name])
        return
    await c.zk.watch(data=[paths.topic(name)], since_zxid=since)
    await start(c, [found])


async def start_topics(c: Controller, names: list[str]) -> None:
    """Reads topics that the model does not have, and starts their partitions."""
    if not names:
        return
    since = c.zk.last_zxid
    topics: list[TopicAssignment] = []
    for found in await c.store.load_topics(names):
        if isinstance(found, Malformed):
            c.malformed(found)
        elif found is not None:
            topics.append(found)
    await c.zk.watch(data=[paths.topic(name) for name in names], since_zxid=since)
    await start(c, topics)


async def start(c: Controller, topics: list[TopicAssignment]) -> None:
    """Brings topics in, tells what was found to run already, and elects leaders for what has none."""
    found = [(i, state) for i, state in await bring_in(c, topics) if not isinstance(state, Malformed)]
    c.observed([c.cluster.observe_leadership(i, state) for i, state in found if state is not None])
    waiting = [i for i, _ in found if c.cluster.rows[i].state is not PartitionState.ONLINE]
    if waiting:
        names = sorted({c.cluster.name(i).topic for i in waiting})
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        await c.carry_out(partial(new_partitions, rows=waiting), f"{len(waiting)} new partitions of {shown}")


async def bring_in(c: Controller, topics: list[TopicAssignment]) -> list[tuple[int, State]]:
    """Enters topics into the model, mended where needed; returns the new rows with the state znodes read for them.

    The model changes only after the last read and write: where the connection is lost before, the event is repeated.
    """
    states: States = {}
    await read_new(c, topics, states)
    mended = [found for topic in topics if (found := await mend(c, topic, states)) is not None]
    rows = [i for topic in mended for i in c.cluster.observe_topic(topic)]
    return [(i, states[c.cluster.name(i)]) for i in rows]


async def read_new(c: Controller, topics: Sequence[TopicAssignment], states: States) -> None:
    """Reads the state znodes of the partitions that neither the model nor ``states`` has."""
    pairs = [
        name
        for topic in topics
        for p in topic.partitions
        if (name := TopicPartition(topic.name, p)) not in states and c.cluster.find(*name) is None
    ]
    states.update(zip(pairs, await c.read_states(pairs), strict=True))


def load(c: Controller, found: list[tuple[int, State]]) -> None:
    """Initial states of rows; those of malformed znodes stay NonExistent, so that nothing is decided on them."""
    good = [(i, state) for i, state in found if not isinstance(state, Malformed)]
    c.cluster.load_leadership([i for i, _ in good], [state for _, state in good])


async def mend(c: Controller, topic: TopicAssignment, states: States) -> TopicAssignment | None:
    """The topic as it may be started, after the write that made it so; None where there is nothing to start.

    Partitions that cannot be mended now are left out; the others are served. They are tried again when the topic
    znode changes or a broker comes.
    """
    for _ in range(MEND_ROUNDS_MAX):
        phantoms = phantoms_of(c, topic, states)
        if not phantoms and not (c.ibp.topic_ids and topic.topic_id is None):
            c.waiting_topics.discard(topic.name)
            return topic
        change = plan_mend(c, topic, phantoms)
        if change is None:
            return await short_of_brokers(c, topic, phantoms, states)
        outcome = await c.store.commit_topics([change], c.fence)
        c.term.check()
        if outcome.applied:
            return mended_as(c, topic, change)
        [again] = await c.store.load_topics([topic.name])
        if not isinstance(again, TopicAssignment) or again.czxid != topic.czxid:
            return None
        await read_new(c, [again], states)
        topic = again
    c.counters.failures["a topic znode could not be mended: tried again at its next change"] += 1
    log.error("topic %s could not be mended: is its znode writable, is something else rewriting it?", topic.name)
    return without(c, topic, phantoms_of(c, topic, states))


def mended_as(c: Controller, topic: TopicAssignment, change: TopicChange) -> TopicAssignment:
    """The topic after the write of ``change``."""
    c.waiting_topics.discard(topic.name)
    if change.partitions:
        c.counters.repaired_assignments += 1
        log.info("topic %s: %s before it starts", topic.name, REPAIRED)
    partitions = {**topic.partitions, **change.partitions}
    return TopicAssignment(topic.name, change.topic_id, partitions, topic.version + 1, topic.czxid)


def fresh_of(topic: TopicAssignment, states: States) -> dict[int, Assignment]:
    """Partitions that the model does not have and that never started."""
    names = {p: TopicPartition(topic.name, p) for p in topic.partitions}
    return {p: a for p, a in topic.partitions.items() if names[p] in states and states[names[p]] is None}


def phantoms_of(c: Controller, topic: TopicAssignment, states: States) -> dict[int, Assignment]:
    """Fresh partitions that name a daemon as a replica."""
    if not names_any(topic, c.daemons):
        return {}
    return {p: a for p, a in fresh_of(topic, states).items() if not c.daemons.isdisjoint(a.replicas)}


def plan_mend(c: Controller, topic: TopicAssignment, phantoms: dict[int, Assignment]) -> TopicChange | None:
    """The rewrite of a topic znode, or None where there are not enough brokers for its replicas."""
    partitions: dict[int, Assignment] | None = {}
    if phantoms:
        load = Counter(b for row in c.cluster.rows for b in row.assignment.replicas)
        partitions = repaired(TopicAssignment(topic.name, None, phantoms, 0, 0), c.daemons, c.cluster.live, load)
    if partitions is None:
        return None
    topic_id = topic.topic_id or (uuid.uuid4().bytes if c.ibp.topic_ids else None)
    return TopicChange(topic.name, topic.version, partitions, topic_id, REPAIRED if phantoms else ID_GIVEN)


async def short_of_brokers(
    c: Controller, topic: TopicAssignment, phantoms: dict[int, Assignment], states: States
) -> TopicAssignment | None:
    """A topic that needs more brokers than there are: deleted where nothing of it ever started."""
    untouched = len(fresh_of(topic, states)) == len(topic.partitions)
    if untouched and await c.store.delete_fresh_topic(topic.name, topic.version, c.fence):
        log.warning(
            "topic %s was auto-created with more replicas than there are brokers (a daemon was counted as one) and is "
            "deleted before it starts: the client tries again; lower the replication factor or add a broker",
            topic.name,
        )
        return None
    log.error(
        "topic %s: %d new partitions name a daemon as a replica and no broker is free to replace it: start a broker, "
        "or rewrite the assignment in %s",
        topic.name,
        len(phantoms),
        paths.topic(topic.name),
    )
    return without(c, topic, phantoms)


def without(c: Controller, topic: TopicAssignment, phantoms: dict[int, Assignment]) -> TopicAssignment:
    """The topic without what must not start: what runs is served."""
    c.waiting_topics.add(topic.name)
    served = {p: a for p, a in topic.partitions.items() if p not in phantoms}
    return TopicAssignment(topic.name, topic.topic_id, served, topic.version, topic.czxid)
