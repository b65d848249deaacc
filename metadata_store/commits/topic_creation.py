"""Creates topics: configuration, its notification and the topic znode in one fenced multi, hundreds together.

Kafka writes the configuration first and the topic after it; here no reader sees one without the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from msgspec import Struct

from metadata_store import paths
from metadata_store.codecs.base import Malformed
from metadata_store.codecs.cluster import encode_config
from metadata_store.codecs.notifications import encode_config_change
from metadata_store.codecs.topic import encode_topic
from metadata_store.errors import NotConnected
from metadata_store.fencing.bounds import Emit, Job, in_flight
from metadata_store.fencing.companion import Companion
from metadata_store.fencing.fenced import WRITES_MAX, Batch, Write, batches, write
from metadata_store.fencing.outcome import Fence, MultiOutcome
from metadata_store.port import IN_FLIGHT_MAX, Create, Node, Op, SetData, ZooKeeper
from metadata_store.reads import read_topics
from state_machines.admin_rules.create_topics import NewTopic
from state_machines.model.types import TopicAssignment

CreationOutcome = MultiOutcome[NewTopic, str]


class TopicZnodes(Struct, frozen=True, gc=False):
    """Znodes under the name of a new topic: topic znode, deletion marker, version of a configuration."""

    topic: TopicAssignment | Malformed | None
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
        async for outcome in in_flight(_jobs(zk, fence, writes, total, writes_max, companions), IN_FLIGHT_MAX):
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


def _jobs(
    zk: ZooKeeper,
    fence: Fence,
    writes: Iterable[Write[str, NewTopic]],
    total: CreationOutcome,
    writes_max: int,
    companions: Mapping[str, Companion] | None,
) -> Iterator[Job[CreationOutcome]]:
    for batch in batches(writes, total.refused, zk.request_bytes_max, writes_max, companions):
        yield partial(_write, zk, fence, batch)


async def _write(zk: ZooKeeper, fence: Fence, batch: Batch[NewTopic, str], emit: Emit[CreationOutcome]) -> None:
    emit(await write(zk, fence, batch))
