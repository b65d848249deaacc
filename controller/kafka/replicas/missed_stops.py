"""Writes final rewrites of reassignments together with the memory of replicas that were not acknowledged as stopped."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Final

from controller.kafka.path.conflict_rounds import ConflictRounds
from controller.kafka.path.controller import Controller
from controller.kafka.path.event_kinds import EventKind
from controller.kafka.replicas.strays import CONFLICTS
from controller.kafka.replicas.topic_rewrites import ALONE_MAX, TOGETHER_MAX, observe_rewrites
from controller.process.wall_clock import wall_ms
from controller.process.wording import abbreviate, named
from metadata_store.commits.topic_commit import TopicOutcome
from metadata_store.errors import Code, NotConnected, OutcomeUnknown, ZkError
from metadata_store.nodes.stray_nodes import (
    ENTRIES_MAX,
    PARENT,
    PARTITIONS_MAX,
    Remembered,
    StrayKey,
    added,
    entered,
    ops,
    read_strays,
)
from metadata_store.port import Create
from state_machines.decisions.reassignment import final_rewrites
from state_machines.model.decision import TopicChange
from state_machines.model.types import TopicPartition

log = logging.getLogger("regent.controller")

TOPICS_MAX: Final = 50
"""Topics of one multi with their memories."""
NOT_REMEMBERED: Final = "removed replicas are not remembered: their logs stay on brokers that did not stop them"


async def finish_missed(c: Controller, rows: Collection[int]) -> set[int]:
    """Finishes those of ``rows`` with replicas that were not acknowledged as stopped, and remembers these.

    Returns the rows that are contended: they are tried again later. Rows whose replicas cannot be remembered are left
    to the caller, and finished without: a memory never holds a reassignment up.
    """
    rounds = ConflictRounds(TOGETHER_MAX, alone=ALONE_MAX)
    refused: set[int] = set()
    for writes_max in rounds:
        changes = _changes(c, rows, refused)
        if not changes:
            break
        await c.connected()
        try:
            await ensure_parent(c)
            for some in _parts(changes, min(writes_max, TOPICS_MAX)):
                refused |= await _write(c, some, alone=writes_max == 1)
        except (NotConnected, OutcomeUnknown):
            c.gate.check()
            c.strays.load(await c.until_read(partial(read_strays, c.zk)))
            rounds.repeat()
    return _missed(c, rows) - refused


def _missed(c: Controller, rows: Collection[int]) -> set[int]:
    return {i for i in rows if c.reassignment_queue.unacknowledged(c.cluster, i)}


def _changes(c: Controller, rows: Collection[int], refused: Collection[int]) -> list[TopicChange]:
    """Returns the final rewrites of topics with a replica to be remembered; all their rows go together."""
    topics = {c.cluster.rows[i].topic for i in _missed(c, rows).difference(refused)}
    return final_rewrites(c.cluster, [i for i in rows if c.cluster.rows[i].topic in topics and i not in refused])


def _parts(changes: Sequence[TopicChange], size: int) -> Iterator[Sequence[TopicChange]]:
    for at in range(0, len(changes), size):
        yield changes[at : at + size]


async def ensure_parent(c: Controller) -> None:
    """Creates the parent of the memories where this term knows of none."""
    if not c.strays.parent:
        error = await c.write_singly(Create(PARENT, b""))
        c.strays.parent = error is None or error.code is Code.NODE_EXISTS


async def _write(c: Controller, changes: Sequence[TopicChange], *, alone: bool) -> set[int]:
    """Writes topics and memories in one multi; returns the rows that are to be finished without a memory.

    ``alone``: one topic is written, so that a refusal is its own.
    """
    rows, memories = _memories(c, changes)
    why = unwritable(c, memories)
    if why is None:
        try:
            rider = ops(c.strays.entries, memories)
            outcome = await c.store.commit_topics_with(changes, c.fence, rider)
        except ZkError as failed:
            c.gate.check()
            if failed.code in CONFLICTS:
                c.strays.load(await c.until_read(partial(read_strays, c.zk)))
                return set()
            why = f"{failed.code.name} at {failed.path}: check its ACL"
        else:
            why = _too_big(outcome, memories)
            if why is None:
                await _entered(c, changes, outcome, memories)
                refused = {topic for topic, _ in outcome.refused} if alone else set()
                return _rows_of(c, rows, {*outcome.gone, *refused})
    if len(changes) > 1:  # one that cannot be remembered takes no other along
        return {row for change in changes for row in await _write(c, [change], alone=True)}
    c.counters.failures[NOT_REMEMBERED] += 1
    log.error("%s: %s: %s; regent strays lists them", NOT_REMEMBERED, changes[0].topic, why)
    return rows


def _too_big(outcome: TopicOutcome, memories: Collection[StrayKey]) -> str | None:
    """Returns what to do where topics and their memories are too large for one write: nothing was sent; else None."""
    if all(code is not Code.TOO_BIG for _, code in outcome.refused):
        return None
    brokers = named(sorted({key.broker for key in memories}))
    remedy = f"start broker {brokers}, or an empty one with its id"
    return f"the topic and what is remembered of it have too many bytes for one write: {remedy}"


def _rows_of(c: Controller, rows: Collection[int], topics: Collection[str]) -> set[int]:
    return {i for i in rows if c.cluster.name(i).topic in topics}


def _memories(c: Controller, changes: Sequence[TopicChange]) -> tuple[set[int], dict[StrayKey, Remembered]]:
    """Returns the rows of the changes, and the contents that the znodes of missed stops are to have."""
    found: dict[StrayKey, Remembered] = {}
    rows: set[int] = set()
    now_ms = wall_ms()
    for change in changes:
        topic_id = topic_id_of(c, change.topic)
        for number in change.partitions:
            i = c.cluster.find(change.topic, number)
            for broker in () if i is None else c.reassignment_queue.unacknowledged(c.cluster, i):
                key = StrayKey(broker, change.topic)
                known = c.strays.entries.get(key)
                before = found.get(key) or (known.content if known is not None else None)
                found[key] = added(before, Remembered({number: now_ms}, change.czxid, topic_id))
            rows.update(() if i is None else (i,))
    return rows, found


def topic_id_of(c: Controller, name: str) -> str:
    """Returns the id of a topic as memories have it."""
    topic = c.cluster.topic(name)
    return topic.topic_id.hex() if topic is not None and topic.topic_id is not None else ""


def unwritable(c: Controller, memories: dict[StrayKey, Remembered]) -> str | None:
    """Returns why the memories cannot be written, None where they can."""
    if PARENT in c.strays.unread:
        return f"{PARENT} cannot be read: check its ACL"
    if not c.strays.parent:
        return f"{PARENT} cannot be created: check the ACL of the znode above it"
    for key, content in memories.items():
        if key.path in c.strays.unread:
            return f"{key.path} is not understood: repair or delete it"
        if len(content.partitions) > PARTITIONS_MAX:
            instead = f"start broker {key.broker}, or an empty one with its id"
            return f"{key.path} would have more than {PARTITIONS_MAX} partitions: {instead}"
    if len(c.strays.entries.keys() | memories.keys()) > ENTRIES_MAX:
        return f"{PARENT} would have more than {ENTRIES_MAX} children: start these brokers, or delete their children"
    return None


async def _entered(
    c: Controller, changes: Sequence[TopicChange], outcome: TopicOutcome, memories: dict[StrayKey, Remembered]
) -> None:
    """Enters the written memories; where the outcome is unknown, all are read."""
    c.strays.forgotten((key.broker, TopicPartition(key.topic, n)) for key in memories for n in memories[key].partitions)
    if len(outcome.applied) == len(changes):
        c.strays.entries = entered(c.strays.entries, memories)
        _say(memories)
        c.queue.signal(EventKind.STRAYS)
    else:
        c.strays.load(await c.until_read(partial(read_strays, c.zk)))
    await observe_rewrites(c, changes, outcome)


def _say(memories: dict[StrayKey, Remembered]) -> None:
    brokers = sorted({key.broker for key in memories})
    log.warning(
        "brokers %s did not acknowledge that removed replicas of %s stopped: they are remembered in %s, and stopped "
        "once their brokers respond",
        brokers,
        abbreviate(sorted({key.topic for key in memories})),
        PARENT,
    )
