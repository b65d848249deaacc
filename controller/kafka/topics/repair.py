"""Repairs topic znodes that other clients wrote, before their partitions start (S4-85, S4-88).

A new topic may have no topic id (IBP 2.8 and later), or name a daemon among its replicas, because brokers take the
daemon for one of them. An old tool may have cut the topic id, partitions or a reassignment's replicas from the znode of
a running topic: the model still has them.

For a moment after the last daemon's end brokers count it as one of them, and Kafka's own controller starts topics that
they auto-create then. Such a partition goes on, and a broker takes the place of the daemon: the replica exists nowhere,
so moving it loses nothing.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from itertools import chain

from controller.kafka.path.controller import ConflictRounds, Controller
from controller.kafka.path.events import EventKind
from controller.kafka.reassignments.reassignment_requests import begin
from metadata_store import paths
from metadata_store.codecs.base import MalformedNode
from metadata_store.nodes.cluster_nodes import delete_fresh_topic
from state_machines.decisions.reassignment import current_assignment
from state_machines.decisions.topic_change import names_any, repaired, taken_out
from state_machines.model.decision import TopicChange
from state_machines.model.types import Assignment, Leadership, TopicAssignment, TopicPartition

log = logging.getLogger("regent.controller")

REPAIR_ROUNDS_MAX = 3
REPAIRED = "a daemon's id among the replicas replaced by a broker's"
ID_GIVEN = "topic id given"
RESTORED = "what another took out is written back"
State = Leadership | MalformedNode | None
States = dict[str, dict[int, State]]
"""State znodes of partitions that the model does not have, by topic and partition."""


async def read_new(c: Controller, topics: Sequence[TopicAssignment], states: States) -> None:
    """Reads the state znodes of the partitions that neither the model nor ``states`` has."""
    wanted = {topic.name: _unread(c, topic, states.setdefault(topic.name, {})) for topic in topics}
    pairs = [(name, p) for name, partitions in wanted.items() for p in partitions]
    if pairs:
        found = iter(await c.read_states(pairs))
        for name, partitions in wanted.items():
            states[name].update(zip(partitions, found, strict=False))


def _unread(c: Controller, topic: TopicAssignment, read: Mapping[int, State]) -> Collection[int]:
    known = c.cluster.topic(topic.name)
    if known is None and not read:
        return topic.partitions
    return [p for p in topic.partitions if p not in read and c.cluster.find(topic.name, p) is None]


class Load:
    """Counts replicas per broker, of the model and of the topics that are being brought in, when first needed."""

    def __init__(self, c: Controller, topics: Sequence[TopicAssignment]) -> None:
        self._c = c
        self._topics = topics
        self._counted: Counter[int] | None = None

    def counted(self) -> Counter[int]:
        """Returns the replicas by broker."""
        if self._counted is None:
            coming = (a for topic in self._topics for a in topic.partitions.values())
            known = (row.assignment for row in self._c.cluster.rows)
            self._counted = Counter(b for a in chain(known, coming) for b in a.replicas)
        return self._counted

    def add(self, partitions: Mapping[int, Assignment]) -> None:
        """Adds repaired assignments."""
        if partitions:
            self.counted().update(b for a in partitions.values() for b in a.replicas)


async def repair(c: Controller, topics: Sequence[TopicAssignment], states: States, load: Load) -> list[TopicAssignment]:
    """Repairs the znodes; returns the topics as they may be started, without those that must not start.

    It leaves out partitions that cannot be repaired now; the others are served. It tries them again when the topic
    znode changes or a broker registers.
    """
    served: list[TopicAssignment] = []
    waiting = list(topics)
    for _ in ConflictRounds(REPAIR_ROUNDS_MAX):
        planned = {change.topic: (topic, change) async for topic, change in _plans(c, waiting, states, load, served)}
        if not planned:
            return served
        outcome = await c.store.commit_topics([change for _, change in planned.values()], c.fence)
        c.gate.check()
        served += [repaired_as(c, *planned.pop(change.topic)) for change in outcome.applied]
        waiting = await _again(c, [topic for topic, _ in planned.values()], states)
    for topic in waiting:
        c.counters.failures["a topic znode could not be repaired: tried again at its next change"] += 1
        log.error(
            "topic %s could not be repaired: check its ACL, jute.maxbuffer, and other writers of its znode",
            topic.name,
        )
        served.append(without(c, topic, phantoms_of(c, topic, states)))
    return served


async def _plans(
    c: Controller, topics: Sequence[TopicAssignment], states: States, load: Load, served: list[TopicAssignment]
) -> AsyncIterator[tuple[TopicAssignment, TopicChange]]:
    """Plans the needed rewrites; topics that need none, or cannot have one, go into ``served``."""
    for topic in topics:
        phantoms, lost, topic_id = phantoms_of(c, topic, states), taken_out(c.cluster, topic), _id_of(c, topic, states)
        if not phantoms and not lost and topic.topic_id == topic_id:
            c.waiting_topics.discard(topic.name)
            served.append(topic)
        elif (change := plan_repair(c, topic, phantoms, load, lost, topic_id)) is not None:
            load.add(change.partitions)
            yield topic, change
        elif (rest := await short_of_brokers(c, topic, phantoms, states)) is not None:
            served.append(rest)


async def _again(c: Controller, topics: Sequence[TopicAssignment], states: States) -> list[TopicAssignment]:
    """Reads topics again; those that were recreated meanwhile are left to another event."""
    before = {topic.name: topic.czxid for topic in topics}
    found = await c.store.load_topics(list(before)) if before else []
    same = [t for t in found if isinstance(t, TopicAssignment) and t.czxid == before[t.name]]
    await read_new(c, same, states)
    return same


def repaired_as(c: Controller, topic: TopicAssignment, change: TopicChange) -> TopicAssignment:
    """Returns the topic after the write of ``change``."""
    c.waiting_topics.discard(topic.name)
    if change.why == REPAIRED:
        c.counters.repaired_assignments += 1
        log.info("topic %s: %s before it starts", topic.name, REPAIRED)
    partitions = {**topic.partitions, **change.partitions}
    return TopicAssignment(topic.name, change.topic_id, partitions, topic.version + 1, topic.czxid)


def fresh_of(topic: TopicAssignment, states: States) -> dict[int, Assignment]:
    """Lists partitions that the model does not have and that never started."""
    read = states[topic.name]
    return {p: a for p, a in topic.partitions.items() if p in read and read[p] is None}


def note_running(c: Controller, topics: Sequence[TopicAssignment], states: States) -> None:
    """Notes partitions that a broker's controller started with a daemon's id: only reassignments change them."""
    for topic in topics:
        if names_any(topic, c.daemons):
            fresh = fresh_of(topic, states)
            if any(p not in fresh and not c.daemons.isdisjoint(a.replicas) for p, a in topic.partitions.items()):
                c.reassignment_queue.name_daemons.add(topic.name)
                c.queue.signal(EventKind.REPLACE_DAEMONS)


def phantoms_of(c: Controller, topic: TopicAssignment, states: States) -> dict[int, Assignment]:
    """Lists fresh partitions that name a daemon as a replica."""
    if not names_any(topic, c.daemons):
        return {}
    return {p: a for p, a in fresh_of(topic, states).items() if not c.daemons.isdisjoint(a.replicas)}


def _id_of(c: Controller, topic: TopicAssignment, states: States) -> bytes | None:
    """Chooses the topic id for the znode: the one that brokers were sent, whichever id the znode has now.

    The znode's id counts where brokers refused ours: an operator repairs what another controller did. A topic that
    started without an id may have lost it: :mod:`controller.kafka.topics.lost_ids` queries brokers.
    """
    known = c.cluster.topic(topic.name)
    told = None if known is None or known.czxid != topic.czxid else known.topic_id
    if known is not None and topic.topic_id is not None and c.cluster.doubts_id(known):
        return topic.topic_id
    if told is not None or topic.topic_id is not None or not c.ibp.topic_ids:
        return told or topic.topic_id
    if _has_started(c, topic, states):
        c.lost_ids.add(topic.name, topic.czxid)
        return None
    return uuid.uuid4().bytes


def _has_started(c: Controller, topic: TopicAssignment, states: States) -> bool:
    known = c.cluster.topic(topic.name)
    running = known is not None and any(c.cluster.rows[i].has_leadership for i in known.rows)
    return running or any(state is not None for state in states[topic.name].values())


def plan_repair(
    c: Controller,
    topic: TopicAssignment,
    phantoms: dict[int, Assignment],
    load: Load,
    lost: Mapping[int, Assignment],
    topic_id: bytes | None,
) -> TopicChange | None:
    """Plans the rewrite of a topic znode; None where there are not enough brokers for its replicas."""
    partitions: dict[int, Assignment] | None = {}
    if phantoms:
        asked = TopicAssignment(topic.name, None, phantoms, 0, 0)
        partitions = repaired(asked, c.daemons, c.cluster.live, load.counted())
    if partitions is None:
        return None
    if topic.name in c.cluster.topic_index and (lost or topic.topic_id != topic_id):
        _say_rewritten(topic, lost, id_lost=topic.topic_id != topic_id)
    why = REPAIRED if phantoms else RESTORED if lost else ID_GIVEN
    return TopicChange(topic.name, topic.version, topic.czxid, {**partitions, **lost}, topic_id, why)


def _say_rewritten(topic: TopicAssignment, lost: Mapping[int, Assignment], *, id_lost: bool) -> None:
    parts = ["its topic id"] * id_lost
    if gone := [p for p in lost if p not in topic.partitions]:
        parts.append(f"{len(gone)} of its partitions")
    if len(gone) < len(lost):
        parts.append(f"the reassignment of {len(lost) - len(gone)} partitions")
    log.warning(
        "topic %s: something else rewrote %s without %s, which is written back; find the tool (CMAK, kafka-topics "
        "--zookeeper, a script) and let it write there no more",
        topic.name,
        paths.topic(topic.name),
        " and ".join(parts),
    )


async def short_of_brokers(
    c: Controller, topic: TopicAssignment, phantoms: dict[int, Assignment], states: States
) -> TopicAssignment | None:
    """Deletes a topic that needs more brokers than there are, where none of its partitions ever started."""
    untouched = len(fresh_of(topic, states)) == len(topic.partitions)
    if untouched and await delete_fresh_topic(c.zk, topic.name, topic.version, c.fence):
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
    """Returns the topic without the partitions that must not start: running ones are served."""
    c.waiting_topics.add(topic.name)
    served = {p: a for p, a in topic.partitions.items() if p not in phantoms}
    return TopicAssignment(topic.name, topic.topic_id, served, topic.version, topic.czxid)


async def replace_daemons(c: Controller) -> None:
    """Reassigns such partitions; topics without a free broker wait until one registers."""
    load: Mapping[int, int] = Counter(b for row in c.cluster.rows for b in row.assignment.replicas)
    targets: dict[TopicPartition, tuple[int, ...] | None] = {}
    for name in sorted(c.reassignment_queue.name_daemons):
        named = _named(c, name)
        if not named:
            c.reassignment_queue.name_daemons.discard(name)
            continue
        found = repaired(TopicAssignment(name, None, named, 0, 0), c.daemons, c.cluster.live, load)
        if found is None:
            log.warning(
                "topic %s: %d running partitions name a daemon among their replicas and no broker is free to take its "
                "place: start one",
                name,
                len(named),
            )
            continue
        targets.update({TopicPartition(name, p): assignment.replicas for p, assignment in found.items()})
    if targets:
        refused = await begin(c, targets, "that name a daemon among their replicas")
        left = {name.topic for name in refused}
        c.reassignment_queue.name_daemons.difference_update({name.topic for name in targets} - left)


def _named(c: Controller, name: str) -> dict[int, Assignment]:
    """Returns targets for a topic's partitions that name a daemon."""
    topic = c.cluster.topic(name)
    found = {} if topic is None else {c.cluster.rows[i].partition: current_assignment(c.cluster, i) for i in topic.rows}
    return {
        p: Assignment(now.target)
        for p, now in found.items()
        if now is not None and not c.daemons.isdisjoint(now.target)
    }
