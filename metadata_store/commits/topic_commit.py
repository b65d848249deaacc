"""Commits changes of topic znodes: fenced, conditional rewrites that keep unknown fields.

Kafka's controller rewrites topic znodes with any version, so that a broker's CreatePartitions in between is lost. Here
the version that the change was decided on must still hold. ZooKeeper cannot compare incarnations: a topic that another
client deletes and creates again right before the write has the same version. Only the reply shows that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from metadata_store import paths
from metadata_store.codecs.base import Malformed
from metadata_store.codecs.topic import encode_topic
from metadata_store.errors import Code, MultiFailed, NotConnected
from metadata_store.fencing.bounds import Emit, Job, in_flight
from metadata_store.fencing.companion import Companion
from metadata_store.fencing.fenced import (
    WRITES_MAX,
    Batch,
    Write,
    attempt_with_results,
    batches,
    judged,
    write_with_results,
)
from metadata_store.fencing.outcome import Fence, MultiOutcome
from metadata_store.port import IN_FLIGHT_MAX, Op, OpResult, SetData, Stat, ZooKeeper
from metadata_store.reads import read_topics
from state_machines.model.decision import TopicChange
from state_machines.model.types import TopicAssignment

log = logging.getLogger("regent.metadata_store")

TopicOutcome = MultiOutcome[TopicChange, str]

_OVERWRITTEN: Final = (
    "%s: another client deleted the topic and created it again in the moment before regent's write, which therefore "
    "gave the new topic the assignment and id of the deleted one (%s): compare it with what that client wanted, or "
    "delete the topic with an admin client and create it again"
)


async def commit_topics(
    zk: ZooKeeper,
    changes: Sequence[TopicChange],
    fence: Fence,
    writes_max: int = WRITES_MAX,
    companions: Mapping[str, Companion] | None = None,
) -> TopicOutcome:
    """Rewrites topic znodes; a write that was not sent because the connection was lost counts as a conflict.

    ``companions``: by topic.
    """
    total: TopicOutcome = MultiOutcome()
    found = await read_topics(zk, [change.topic for change in changes])
    jobs = _jobs(zk, fence, _writes(changes, found, total), total, writes_max, companions)
    try:
        async for outcome in in_flight(jobs, IN_FLIGHT_MAX):
            total.add(outcome)
    except NotConnected:
        settled = {change.topic for change in total.applied} | {topic for topic, _ in total.refused}
        waiting = {change.topic for change in changes}
        total.conflicts += sorted(waiting - settled - {*total.conflicts, *total.gone, *total.unknown})
    return total


async def commit_topics_with(
    zk: ZooKeeper, changes: Sequence[TopicChange], fence: Fence, companion: Sequence[Op]
) -> TopicOutcome:
    """Rewrites topic znodes in one multi with the operations of ``companion``, all or nothing.

    Raises ``MultiFailed`` where the companion itself cannot be written, ``Fenced`` and ``NotConnected``.
    """
    total: TopicOutcome = MultiOutcome()
    found = await read_topics(zk, [change.topic for change in changes])
    writes = list(_writes(changes, found, total))
    if len(writes) < len(changes):
        total.conflicts += [topic for topic, _, _ in writes]
        return total
    ops = [*companion, *(op for _, _, (op,) in writes)]
    batch = Batch([topic for topic, _, _ in writes], list(changes), ops, range(-len(companion), len(writes)))
    outcome, results = await attempt_with_results(zk, fence, batch)
    if isinstance(outcome, MultiFailed):
        if outcome.index <= len(companion):
            raise outcome
        outcome = judged(batch, outcome)
    return _without_strangers(outcome, changes, results[len(companion) :])


def _jobs(
    zk: ZooKeeper,
    fence: Fence,
    writes: Iterable[Write[str, TopicChange]],
    total: TopicOutcome,
    writes_max: int,
    companions: Mapping[str, Companion] | None,
) -> Iterator[Job[TopicOutcome]]:
    for batch in batches(writes, total.refused, zk.request_bytes_max, writes_max, companions):
        yield partial(_write, zk, fence, batch)


async def _write(zk: ZooKeeper, fence: Fence, batch: Batch[TopicChange, str], emit: Emit[TopicOutcome]) -> None:
    outcome, results = await write_with_results(zk, fence, batch)
    emit(_without_strangers(outcome, batch.changes, results))


def _without_strangers(
    outcome: TopicOutcome, changes: Sequence[TopicChange], results: Sequence[OpResult]
) -> TopicOutcome:
    """Counts a topic as gone whose next incarnation was written; there are no results where the multi failed."""
    for change, stat in zip(changes, results, strict=False):
        if isinstance(stat, Stat) and stat.czxid != change.czxid:
            outcome.gone.append(change.topic)
            log.error(_OVERWRITTEN, change.topic, paths.topic(change.topic))
    outcome.applied = [change for change in outcome.applied if change.topic not in outcome.gone]
    return outcome


def _writes(
    changes: Iterable[TopicChange], found: Iterable[TopicAssignment | Malformed | None], total: TopicOutcome
) -> Iterator[Write[str, TopicChange]]:
    """Yields the writes of topics that did not change since the decision; the rest goes into ``total``."""
    for change, topic in zip(changes, found, strict=True):
        if topic is None or (isinstance(topic, TopicAssignment) and change.czxid != topic.czxid):
            total.gone.append(change.topic)
        elif isinstance(topic, Malformed):
            total.refused.append((change.topic, Code.DATA_INCONSISTENCY))
        elif topic.version != change.version:
            total.conflicts.append(change.topic)
        else:
            yield change.topic, change, (SetData(paths.topic(change.topic), _data(topic, change), change.version),)


def _data(topic: TopicAssignment, change: TopicChange) -> bytes:
    topic_id = change.topic_id if change.topic_id is not None else topic.topic_id
    partitions = {**topic.partitions, **change.partitions}
    kept = {p: a for p, a in partitions.items() if p not in change.dropped} if change.dropped else partitions
    return encode_topic(kept, topic_id, topic.unknown)
