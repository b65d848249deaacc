"""Commits topics: creates hundreds together in fenced multis, and rewrites topic znodes, keeping unknown fields.

Kafka's controller rewrites topic znodes with any version, so that a broker's CreatePartitions in between is lost. Here
the version that the change was decided on must still hold. ZooKeeper cannot compare incarnations: a topic that another
client deletes and creates again right before the write has the same version. Only the reply shows that.

Kafka writes the configuration first and the topic after it; here no reader sees one without the other.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from metadata_store import paths
from metadata_store.codecs.base import MalformedNode
from metadata_store.codecs.cluster import encode_config
from metadata_store.codecs.notifications import encode_config_change
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
    write,
    write_with_results,
)
from metadata_store.fencing.outcome import Fence, MultiOutcome
from metadata_store.port import IN_FLIGHT_MAX, Create, Node, Op, OpResult, SetData, Stat, ZooKeeper
from metadata_store.reads import read_topics
from state_machines.admin_rules.create_topics import NewTopic
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
    changes: Iterable[TopicChange], found: Iterable[TopicAssignment | MalformedNode | None], total: TopicOutcome
) -> Iterator[Write[str, TopicChange]]:
    """Yields the writes of topics that did not change since the decision; the rest goes into ``total``."""
    for change, topic in zip(changes, found, strict=True):
        if topic is None or (isinstance(topic, TopicAssignment) and change.czxid != topic.czxid):
            total.gone.append(change.topic)
        elif isinstance(topic, MalformedNode):
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


CreationOutcome = MultiOutcome[NewTopic, str]


class TopicZnodes(Struct, frozen=True, gc=False):
    """Znodes under the name of a new topic: topic znode, deletion marker, version of a configuration."""

    topic: TopicAssignment | MalformedNode | None
    marked: bool
    config_version: int | None


async def read_contexts(zk: ZooKeeper, names: Sequence[str]) -> dict[str, TopicZnodes]:
    """Reads existing znodes under the names of new topics, after ``sync``; raises ``NotConnected``."""
    await zk.sync("/")
    topics = await read_topics(zk, names)
    wanted = [path for name in names for path in (paths.deletion(name), paths.topic_config(name))]
    beside = await zk.read_many(wanted)
    found: dict[str, TopicZnodes] = {}
    for at, (name, topic) in enumerate(zip(names, topics, strict=True)):
        marker, config = beside[2 * at : 2 * at + 2]
        version = config.stat.version if isinstance(config, Node) else None
        found[name] = TopicZnodes(topic, isinstance(marker, Node), version)
    return found


async def create_topics(
    zk: ZooKeeper,
    topics: Iterable[tuple[NewTopic, int | None]],
    fence: Fence,
    writes_max: int = WRITES_MAX,
    companions: Mapping[str, Companion] | None = None,
) -> CreationOutcome:
    """Creates topics, each with the version of the configuration that it replaces (None: there is none).

    ``companions``: by topic. A write that was not sent because the connection was lost counts as a conflict. Raises
    ``Fenced``.
    """
    total: CreationOutcome = MultiOutcome()
    writes = [(topic.name, topic, _ops(topic, version)) for topic, version in topics]
    try:
        async for outcome in in_flight(_creation_jobs(zk, fence, writes, total, writes_max, companions), IN_FLIGHT_MAX):
            total.add(outcome)
    except NotConnected:
        settled = {topic.name for topic in total.applied} | {name for name, _ in total.refused}
        settled.update(total.conflicts, total.gone, total.unknown)
        total.conflicts += [name for name, _, _ in writes if name not in settled]
    return total


def _ops(topic: NewTopic, config_version: int | None) -> tuple[Op, ...]:
    config = encode_config(topic.configs)
    path = paths.topic_config(topic.name)
    first: Op = Create(path, config) if config_version is None else SetData(path, config, config_version)
    notification: tuple[Op, ...] = ()
    if topic.configs or config_version is not None:
        notification = (
            Create(paths.CONFIG_CHANGE_PREFIX, encode_config_change(f"topics/{topic.name}"), sequential=True),
        )
    return first, *notification, Create(paths.topic(topic.name), encode_topic(topic.partitions, topic.topic_id))


def _creation_jobs(
    zk: ZooKeeper,
    fence: Fence,
    writes: Iterable[Write[str, NewTopic]],
    total: CreationOutcome,
    writes_max: int,
    companions: Mapping[str, Companion] | None,
) -> Iterator[Job[CreationOutcome]]:
    for batch in batches(writes, total.refused, zk.request_bytes_max, writes_max, companions):
        yield partial(_create, zk, fence, batch)


async def _create(zk: ZooKeeper, fence: Fence, batch: Batch[NewTopic, str], emit: Emit[CreationOutcome]) -> None:
    emit(await write(zk, fence, batch))
