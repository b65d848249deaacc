"""Reads the sizes of chosen replicas from one broker, for instance of those that a reassignment adds to it.

The requests are small on purpose: a broker with 100,000 replicas lists only the requested ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import groupby, islice
from operator import attrgetter
from typing import Final

from msgspec import Struct

from brokers.client import BrokerCallFailed
from brokers.queries import BrokerQueries, Dial, query_each
from state_machines.model.types import Broker, TopicPartition

PARTITIONS_PER_REQUEST_MAX: Final = 2_000
"""Most partitions of one request: the response then has some tens of kilobytes."""

DIRECTORIES_MAX: Final = 1_000
"""Most log directories of a broker."""
ITEMS_PER_PARTITION_MAX: Final = 4
"""A partition has a log and perhaps a future log; a directory lists each below an entry of its topic."""


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
        for directory in await queries.replica_logs(_by_topic(wanted), replicas_max):
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


def _by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    """Groups sorted partitions by their topics."""
    grouped = groupby(partitions, key=attrgetter("topic"))
    return {topic: [each.partition for each in those] for topic, those in grouped}
