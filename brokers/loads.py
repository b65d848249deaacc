"""Reads the sizes and offsets of all replicas from the brokers, in small requests, broker by broker.

A broker's rows are complete, or the error says why there are none. Replicas without a log, and partitions whose leader
refuses its offsets, are named.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from msgspec import Struct

from brokers.client import BrokerCallFailed, ClusterMetadata
from brokers.queries import BrokerQueries, Dial, query_each
from state_machines.model.types import Broker

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
