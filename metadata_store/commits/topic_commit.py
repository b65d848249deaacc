"""Commits changes of topic znodes: fenced, conditional rewrites that keep unknown fields.

Kafka's controller rewrites topic znodes with any version, so that a broker's CreatePartitions in between is lost. Here
the version that the change was decided on must still hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from metadata_store import paths
from metadata_store.codecs.base import Malformed
from metadata_store.codecs.topic import encode_topic
from metadata_store.errors import Code, NotConnected
from metadata_store.fencing.fenced import WRITES_MAX, Batch, Write, batches, write
from metadata_store.fencing.outcome import Fence, MultiOutcome
from metadata_store.fencing.window import Emit, Job, in_flight
from metadata_store.port import IN_FLIGHT_MAX, SetData, ZooKeeper
from metadata_store.reads import read_topics
from state_machines.model.decision import TopicChange
from state_machines.model.types import TopicAssignment

TopicOutcome = MultiOutcome[TopicChange, str]


async def commit_topics(
    zk: ZooKeeper, changes: Sequence[TopicChange], fence: Fence, writes_max: int = WRITES_MAX
) -> TopicOutcome:
    """Rewrites topic znodes; a write that was not sent because the connection was lost counts as a conflict."""
    total: TopicOutcome = MultiOutcome()
    found = await read_topics(zk, [change.topic for change in changes])
    jobs = _jobs(zk, fence, _writes(changes, found, total), total, writes_max)
    try:
        async for outcome in in_flight(jobs, IN_FLIGHT_MAX):
            total.add(outcome)
    except NotConnected:
        settled = {change.topic for change in total.applied} | {topic for topic, _ in total.refused}
        waiting = {change.topic for change in changes}
        total.conflicts += sorted(waiting - settled - {*total.conflicts, *total.gone, *total.unknown})
    return total


def _jobs(
    zk: ZooKeeper, fence: Fence, writes: Iterable[Write[str, TopicChange]], total: TopicOutcome, writes_max: int
) -> Iterator[Job[TopicOutcome]]:
    for batch in batches(writes, total.refused, zk.request_bytes_max, writes_max):
        yield partial(_write, zk, fence, batch)


async def _write(zk: ZooKeeper, fence: Fence, batch: Batch[TopicChange, str], emit: Emit[TopicOutcome]) -> None:
    emit(await write(zk, fence, batch))


def _writes(
    changes: Iterable[TopicChange], found: Iterable[TopicAssignment | Malformed | None], total: TopicOutcome
) -> Iterator[Write[str, TopicChange]]:
    """Yields the writes of topics that did not change since the decision; the rest goes into ``total``."""
    for change, topic in zip(changes, found, strict=True):
        if topic is None or (isinstance(topic, TopicAssignment) and change.czxid not in (None, topic.czxid)):
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
