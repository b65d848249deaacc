"""Topics come and go, partitions are added (S4-39..S4-43, S4-79, S4-85, S4-88).

What brokers wrote is mended before anything of it starts: a missing topic id (IBP 2.8 and later), or a daemon's id
among the replicas of an auto-created topic. A topic is started only from what was read back or written by us.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from functools import partial

from controller.controller import Controller
from metadata_store import paths
from metadata_store.kafka_store import Malformed
from state_machines.decision import TopicChange
from state_machines.topic_change import names_any, new_partitions, repaired
from state_machines.types import Assignment, Leadership, TopicAssignment, TopicPartition

log = logging.getLogger("regent.controller")

MEND_ROUNDS_MAX = 3
REPAIRED = "a daemon's id among the replicas replaced by a broker's"
ID_GIVEN = "topic id given"

State = Leadership | Malformed | None
_RUNS = Malformed("", "a partition that the model has already")


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
    """Brings topics in and starts the partitions that never ran; the others are told as they were found."""
    found = await bring_in(c, topics)
    load(c, [(i, state) for i, state in found if isinstance(state, Leadership)])
    c.channels.metadata_changed([i for i, state in found if isinstance(state, Leadership)])
    fresh = [i for i, state in found if state is None]
    if fresh:
        names = sorted({c.cluster.name(i).topic for i in fresh})
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        await c.carry_out(partial(new_partitions, rows=fresh), f"{len(fresh)} new partitions of {shown}")


async def bring_in(c: Controller, topics: list[TopicAssignment]) -> list[tuple[int, State]]:
    """Enters topics into the model, mended where needed; returns the new rows with the state znodes read for them."""
    pairs = [
        TopicPartition(topic.name, p)
        for topic in topics
        for p in topic.partitions
        if c.cluster.find(topic.name, p) is None
    ]
    states = dict(zip(pairs, await c.read_states(pairs), strict=True))
    rows: list[int] = []
    for topic in topics:
        mended = await mend(c, topic, states)
        if mended is not None:
            rows += c.cluster.observe_topic(mended)
    return [(i, states.get(c.cluster.name(i))) for i in rows]


def load(c: Controller, found: list[tuple[int, State]]) -> None:
    """Initial states of rows; those of malformed znodes stay NonExistent, so that nothing is decided on them."""
    good = [(i, state) for i, state in found if not isinstance(state, Malformed)]
    c.cluster.load_leadership([i for i, _ in good], [state for _, state in good])


async def mend(c: Controller, topic: TopicAssignment, states: dict[TopicPartition, State]) -> TopicAssignment | None:
    """The topic as it may be started, after the write that made it so; None where it was deleted or must wait."""
    for _ in range(MEND_ROUNDS_MAX):
        fresh = {p: a for p, a in topic.partitions.items() if states.get(TopicPartition(topic.name, p), _RUNS) is None}
        phantom = names_any(TopicAssignment(topic.name, None, fresh, 0, 0), c.daemons)
        if not phantom and not (c.ibp.topic_ids and topic.topic_id is None):
            return topic
        change = plan_mend(c, topic, fresh if phantom else {})
        if change is None:
            return await discard(c, topic, started=len(fresh) < len(topic.partitions))
        outcome = await c.store.commit_topics([change], c.fence)
        c.term.check()
        if outcome.applied:
            if phantom:
                c.counters.repaired_assignments += 1
                log.info("topic %s: %s before it starts", topic.name, REPAIRED)
            return TopicAssignment(
                topic.name,
                change.topic_id,
                {**topic.partitions, **change.partitions},
                topic.version + 1,
                topic.czxid,
            )
        [again] = await c.store.load_topics([topic.name])
        if not isinstance(again, TopicAssignment):
            return None
        topic = again
    c.counters.failures["topic znode contended: tried again at its next change"] += 1
    return None


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


async def discard(c: Controller, topic: TopicAssignment, *, started: bool) -> TopicAssignment | None:
    """A topic that needs more brokers than there are: deleted where nothing of it ever started, else left alone."""
    if started:
        log.error(
            "topic %s: added partitions name a daemon as a replica and no broker is free to replace it: start a "
            "broker, or rewrite the assignment in %s",
            topic.name,
            paths.topic(topic.name),
        )
        return None
    await c.store.delete_fresh_topic(topic.name, topic.version, c.fence)
    log.warning(
        "topic %s was auto-created with more replicas than there are brokers (a daemon was counted as one) and is "
        "deleted before it starts: the client tries again; lower the replication factor or add a broker",
        topic.name,
    )
    return None
