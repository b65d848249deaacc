"""Rewrites topic znodes, for reassignments and topic ids.

Commits the changes, observes those applied, and reads back those that conflicted or whose outcome is unknown. A final
rewrite has in its multi the memory of removed replicas that were not acknowledged as stopped.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Container, Iterator, Sequence
from functools import partial
from typing import Final

from controller.kafka.path.controller import CONTENDED, ConflictRounds, Controller
from controller.kafka.path.events import EventKind
from controller.kafka.reassignments.strays import CONFLICTS, ensure_parent, topic_id_of, unwritable
from controller.process.clock import wall_ms
from controller.process.wording import abbreviate, named
from metadata_store import paths
from metadata_store.codecs.base import MalformedNode
from metadata_store.commits.topic_commit import TopicOutcome
from metadata_store.errors import Code, NotConnected, OutcomeUnknown, ZkError
from metadata_store.fencing.companion import Companion
from metadata_store.nodes.stray_nodes import PARENT, Remembered, StrayKey, added, entered, ops, read_strays
from state_machines.decisions.reassignment import final_rewrites
from state_machines.decisions.topic_change import taken_out
from state_machines.model.decision import TopicChange
from state_machines.model.topic_facts import AssignmentsRead, TopicIdRead, TopicIdWritten
from state_machines.model.types import Assignment, TopicAssignment, TopicPartition

log = logging.getLogger("regent.controller")

TOGETHER_MAX: Final = 3
"""Rounds in which znodes share multis."""
ALONE_MAX: Final = 7
"""Rounds in which a multi writes one znode. A round that a lost connection interrupts does not count."""
TOPICS_MAX: Final = 50
"""Topics of one multi with their memories."""
NOT_REMEMBERED: Final = "removed replicas are not remembered: their logs stay on brokers that did not stop them"
GONE: Final = "the topic is gone"


NextCompanion = Callable[[], Awaitable[Companion | None]]
"""Returns what goes along with the next write."""


async def rewrite_topics(
    c: Controller,
    plan: Callable[[], Sequence[TopicChange]],
    purpose: str = "reassignment",
    next_companion: NextCompanion | None = None,
) -> dict[str, str]:
    """Writes the changes that ``plan`` returns: calls it before each round, until it returns none.

    ``next_companion``: called before each write. Returns the topics that cannot be written, with the reasons, and
    counts them under ``purpose``. Raises Fenced and TermEnded.
    """
    failed: dict[str, str] = {}

    def wanted() -> list[TopicChange]:
        return [change for change in plan() if change.topic not in failed]

    rounds = ConflictRounds(TOGETHER_MAX, alone=ALONE_MAX)
    for writes_max in rounds:
        changes = wanted()
        if not changes:
            break
        await c.connected()
        companion = await next_companion() if next_companion is not None else None
        companions = dict.fromkeys((change.topic for change in changes), companion) if companion is not None else None
        try:
            outcome = await c.store.commit_topics(changes, c.fence, writes_max=writes_max, companions=companions)
        except (NotConnected, OutcomeUnknown):
            c.gate.check()
            rounds.repeat()
            continue
        await observe_rewrites(c, changes, outcome)
        failed.update(_beyond_retry(outcome))
    else:
        failed.update((change.topic, CONTENDED) for change in wanted())
    _log_and_count(c, failed, purpose)
    return failed


async def observe_rewrites(c: Controller, changes: Sequence[TopicChange], outcome: TopicOutcome) -> None:
    """Observes applied changes, and reads topics back that conflicted or whose outcome is unknown."""
    c.gate.check()
    c.counters.commits += 1
    c.counters.writes += len(outcome.applied)
    for change in outcome.applied:
        c.enter(AssignmentsRead(change.topic, change.version + 1, change.partitions))
        if change.topic_id is not None:
            c.enter(TopicIdWritten(change.topic, change.topic_id))
    if unsettled := outcome.unsettled:
        c.counters.conflicts += len(outcome.conflicts)
        c.counters.unknown_outcomes += len(outcome.unknown)
        await _read_back(c, [change for change in changes if change.topic in unsettled])


async def _read_back(c: Controller, changes: Sequence[TopicChange]) -> None:
    """Reads the topics of ``changes``, and observes the partitions that were to be written."""
    names = [change.topic for change in changes]

    async def read() -> list[TopicAssignment | MalformedNode | None]:
        await c.zk.sync(paths.TOPICS)
        return await c.store.load_topics(names)

    found = await c.until_read(read)
    for change, topic in zip(changes, found, strict=True):
        if isinstance(topic, TopicAssignment) and topic.czxid == change.czxid:
            cut = taken_out(c.cluster, topic)
            known = {
                p: a for p, a in topic.partitions.items() if p in change.partitions and _is_trusted(change, p, a, cut)
            }
            c.enter(AssignmentsRead(topic.name, topic.version, known))
            c.enter(TopicIdRead(topic.name, topic.topic_id))


def _is_trusted(change: TopicChange, partition: int, found: Assignment, cut: Container[int]) -> bool:
    """Returns whether the model takes ``found``: regent wrote it, or no other writer cut the reassignment out."""
    return found == change.partitions[partition] or partition not in cut


def _beyond_retry(outcome: TopicOutcome) -> dict[str, str]:
    """Returns the topics that a retry cannot write, with the reasons."""
    refused = {
        topic: f"ZooKeeper refused the write ({code.name}): check jute.maxbuffer and the znode's ACL"
        for topic, code in outcome.refused
    }
    return {**dict.fromkeys(outcome.gone, GONE), **refused}


def _log_and_count(c: Controller, failed: dict[str, str], purpose: str) -> None:
    """Logs and counts the topics that could not be written, except those deleted meanwhile."""
    found = [(topic, why) for topic, why in failed.items() if why != GONE]
    for topic, why in found[:1]:
        log.error("%d topic znodes could not be rewritten, the first is %s: %s", len(found), paths.topic(topic), why)
    for _, why in found:
        c.counters.failures[f"{purpose}: {why}"] += 1


# -- final rewrites with replicas to remember


async def finish_remembering(c: Controller, rows: Collection[int]) -> set[int]:
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
    return _to_remember(c, rows) - refused


def _to_remember(c: Controller, rows: Collection[int]) -> set[int]:
    return {i for i in rows if c.reassignment_queue.unacknowledged(c.cluster, i)}


def _changes(c: Controller, rows: Collection[int], refused: Collection[int]) -> list[TopicChange]:
    """Returns the final rewrites of topics with a replica to be remembered; all their rows go together."""
    topics = {c.cluster.rows[i].topic for i in _to_remember(c, rows).difference(refused)}
    return final_rewrites(c.cluster, [i for i in rows if c.cluster.rows[i].topic in topics and i not in refused])


def _parts(changes: Sequence[TopicChange], size: int) -> Iterator[Sequence[TopicChange]]:
    for at in range(0, len(changes), size):
        yield changes[at : at + size]


async def _write(c: Controller, changes: Sequence[TopicChange], *, alone: bool) -> set[int]:
    """Writes topics and memories in one multi; returns the rows that are to be finished without a memory.

    ``alone``: one topic is written, so that a refusal is its own.
    """
    rows, memories = _memories(c, changes)
    why = unwritable(c, memories)
    if why is None:
        try:
            companion = ops(c.strays.entries, memories)
            outcome = await c.store.commit_topics_with(changes, c.fence, companion)
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
