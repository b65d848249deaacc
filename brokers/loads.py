"""Reads sizes and offsets of replicas from brokers: of all in small requests, or of chosen ones of one broker.

A broker's rows are complete, or the error says why there are none. Replicas without a log, and partitions whose leader
refuses its offsets, are named.

A request for chosen replicas is small on purpose: a broker with 100,000 replicas lists only the requested ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby, islice
from operator import attrgetter, itemgetter
from typing import Final

from msgspec import Struct

from brokers.client import BrokerCallFailed, ClusterMetadata
from brokers.queries import BrokerQueries, Dial, query_each
from state_machines.model.types import Broker, TopicPartition

PARTITIONS_PER_REQUEST_MAX: Final = 2_000
ITEMS_PER_PARTITION_MAX: Final = 4
"""A partition has a log and perhaps a future log; a directory lists each below an entry of its topic."""
DIRECTORIES_MAX: Final = 1_000

Name = tuple[str, int]


class ReplicaLoad(Struct, frozen=True, gc=False, omit_defaults=True):
    """A log of a replica. Offsets are of leaders alone: the first one, and the high watermark at ``time_ms``."""

    topic: str
    partition: int
    broker: int
    log_dir: str
    is_future: bool
    size_bytes: int
    offset_lag: int
    is_leader: bool
    time_ms: int
    start_offset: int | None = None
    end_offset: int | None = None


class BrokerLoads(Struct, frozen=True):
    """The logs of a broker. ``missing``: assigned partitions without a log; ``refused``: errors of its offsets."""

    rows: Sequence[ReplicaLoad]
    missing: Sequence[Name]
    refused: Mapping[Name, str]


class Hosted(Struct):
    """Partitions of a broker by the cluster's metadata, sorted."""

    replicas: list[Name]
    leads: frozenset[Name]


def hosted_by(metadata: ClusterMetadata) -> dict[int, Hosted]:
    """Returns by broker, registered or not, the partitions that it hosts and those that it leads."""
    replicas: dict[int, list[Name]] = {}
    leads: dict[int, set[Name]] = {}
    for topic, found in sorted(metadata.topics.items()):
        for number, partition in sorted(found.partitions.items()):
            for broker in partition.replicas:
                replicas.setdefault(broker, []).append((topic, number))
            leads.setdefault(partition.leader, set()).add((topic, number))
    return {broker: Hosted(names, frozenset(leads.get(broker, ()))) for broker, names in replicas.items()}


async def read_loads(
    dial: Dial,
    brokers: Mapping[int, Broker],
    hosted: Mapping[int, Hosted],
    take: Callable[[int, BrokerLoads], None],
    wall: Callable[[], float] = time.time,
) -> dict[int, BrokerCallFailed]:
    """Hands the loads of each broker to ``take`` as soon as they are known; returns the brokers that failed."""

    async def query(queries: BrokerQueries, broker: Broker) -> None:
        take(broker.id, await _loads_of(queries, broker.id, hosted[broker.id], wall))

    wanted = {broker: brokers[broker] for broker in hosted if broker in brokers}
    found = await query_each(dial, wanted, query)
    return {broker: failed for broker, failed in found.items() if failed is not None}


async def _loads_of(queries: BrokerQueries, broker: int, hosted: Hosted, wall: Callable[[], float]) -> BrokerLoads:
    rows: list[ReplicaLoad] = []
    missing: list[Name] = []
    refused: dict[Name, str] = {}
    for at in range(0, len(hosted.replicas), PARTITIONS_PER_REQUEST_MAX):
        names = hosted.replicas[at : at + PARTITIONS_PER_REQUEST_MAX]
        directories = await queries.replica_logs(
            _by_topic(names), ITEMS_PER_PARTITION_MAX * len(names) + DIRECTORIES_MAX
        )
        led = [name for name in names if name in hosted.leads]
        first = await queries.offsets(_by_topic(led), earliest=True) if led else {}
        last = await queries.offsets(_by_topic(led)) if led else {}
        time_ms = int(wall() * 1_000)
        seen: set[Name] = set()
        for directory in directories:
            for log in directory.logs:
                name = log.topic, log.partition
                seen.add(name)
                future = log.is_future
                rows.append(
                    ReplicaLoad(
                        *name,
                        broker,
                        directory.path,
                        future,
                        log.size_bytes,
                        log.offset_lag,
                        name in hosted.leads,
                        time_ms,
                        None if future else _offset(first, name),
                        None if future else _offset(last, name),
                    )
                )
        missing += [name for name in names if name not in seen]
        refused |= {name: found for name, found in (first | last).items() if isinstance(found, str)}
    return BrokerLoads(rows, missing, refused)


def _offset(found: Mapping[Name, int | str], name: Name) -> int | None:
    offset = found.get(name)
    return offset if isinstance(offset, int) else None


def _by_topic(names: Sequence[Name]) -> dict[str, list[int]]:
    return {topic: [number for _, number in of] for topic, of in groupby(names, key=itemgetter(0))}


class ReplicaSize(Struct, frozen=True, gc=False):
    """The log of a replica. ``offset_lag`` is in offsets behind the high watermark, -1 where it is not known."""

    size_bytes: int
    offset_lag: int
    directory: str


async def sizes(
    queries: BrokerQueries, partitions: Iterable[TopicPartition], partitions_max: int = PARTITIONS_PER_REQUEST_MAX
) -> dict[TopicPartition, ReplicaSize]:
    """Returns the sizes of the broker's replicas of ``partitions``; raises :class:`brokers.client.BrokerCallFailed`.

    A partition without a log on an online directory is left out: the broker has not created it yet, or its directory
    is offline. Future logs, which move between directories of the broker, do not count. Each request names at most
    ``partitions_max`` partitions, and is sent after the response to the one before.
    """
    if partitions_max < 1:
        raise ValueError(f"partitions_max is {partitions_max}: give a request at least 1 partition")
    left, found = iter(sorted(set(partitions))), dict[TopicPartition, ReplicaSize]()
    while wanted := list(islice(left, partitions_max)):
        replicas_max = ITEMS_PER_PARTITION_MAX * len(wanted) + DIRECTORIES_MAX
        for directory in await queries.replica_logs(_sorted_by_topic(wanted), replicas_max):
            for log in directory.logs:
                if not log.is_future:
                    partition = TopicPartition(log.topic, log.partition)
                    found[partition] = ReplicaSize(log.size_bytes, log.offset_lag, directory.path)
    return found


async def sizes_on(
    dial: Dial,
    brokers: Mapping[int, Broker],
    partitions: Mapping[int, Collection[TopicPartition]],
    within_s: float | None = None,
) -> dict[int, dict[TopicPartition, ReplicaSize] | BrokerCallFailed]:
    """Reads the sizes of replicas by broker, from some brokers at a time; a broker that fails has the error.

    Brokers of ``partitions`` that are not among ``brokers`` are left out.
    """

    async def query(queries: BrokerQueries, broker: Broker) -> dict[TopicPartition, ReplicaSize]:
        return await sizes(queries, partitions[broker.id])

    wanted = {broker: brokers[broker] for broker in partitions if broker in brokers}
    return await query_each(dial, wanted, query, within_s)


def _sorted_by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    """Groups sorted partitions by their topics."""
    grouped = groupby(partitions, key=attrgetter("topic"))
    return {topic: [each.partition for each in those] for topic, those in grouped}
