"""Sizes of chosen replicas, which a simulated broker sends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import cast

import pytest

from brokers import replica_sizes
from brokers.client import BrokerCallFailed
from brokers.queries import BrokerQueries
from brokers.replica_sizes import PARTITIONS_PER_REQUEST_MAX, ReplicaSize
from brokers.wire.log_dirs import REPLICAS_MAX, encode_log_dirs, read_log_dirs
from brokers.wire.primitives import Malformed
from state_machines.model.replica_logs import LogDirectory, ReplicaLog
from state_machines.model.types import TopicPartition
from testing.simulated.broker import SimulatedBroker
from testing.simulated.hosting import ONLINE_DIRECTORY, Replica

T, U = "t", "u"


class Queries:
    """Sends queries to a simulated broker; ``requests`` has the partitions of each."""

    def __init__(self) -> None:
        self.broker = SimulatedBroker(1, 10)
        self.requests: list[dict[str, list[int]]] = []
        self.future: tuple[ReplicaLog, ...] = ()

    async def replica_logs(
        self, partitions: Mapping[str, Collection[int]] | None, replicas_max: int = REPLICAS_MAX
    ) -> tuple[LogDirectory, ...]:
        assert partitions is not None
        self.requests.append({topic: list(numbers) for topic, numbers in partitions.items()})
        response = self.broker.receive(encode_log_dirs(4, 1, "test", partitions)[4:])
        try:
            found = read_log_dirs(4, response, 1, replicas_max).directories
        except Malformed as error:
            raise BrokerCallFailed(str(error)) from error
        return (*found, LogDirectory("/elsewhere", 0, self.future))

    def has(self, topic: str, partition: int, size_bytes: int = 0, *, sent: bool = True) -> TopicPartition:
        """Gives the broker a log; ``sent``: the controller has sent it the replica."""
        key = topic, partition
        self.broker.hosting.logs[key] = None
        self.broker.hosting.sizes_bytes[key] = size_bytes
        if sent:
            self.broker.hosting.replicas[key] = Replica()
        return TopicPartition(topic, partition)


async def sizes(
    queries: Queries, partitions: Iterable[TopicPartition], partitions_max: int = PARTITIONS_PER_REQUEST_MAX
) -> dict[TopicPartition, ReplicaSize]:
    """Requests the sizes; no other query is sent."""
    return await replica_sizes.sizes(cast("BrokerQueries", queries), partitions, partitions_max)


def size(size_bytes: int, offset_lag: int = 0) -> ReplicaSize:
    return ReplicaSize(size_bytes, offset_lag, ONLINE_DIRECTORY)


async def test_sizes_of_the_requested_partitions_alone_are_returned() -> None:
    queries = Queries()
    first, second = queries.has(T, 0, 5), queries.has(U, 7, 2**40, sent=False)
    queries.has(T, 1, 6)
    missing = TopicPartition(U, 8)
    assert await sizes(queries, [second, first, missing, first]) == {first: size(5), second: size(2**40, -1)}
    assert queries.requests == [{T: [0], U: [7, 8]}], "one request, each partition once"
    assert await sizes(queries, []) == {}
    assert len(queries.requests) == 1


async def test_a_replica_on_a_failed_directory_is_left_out() -> None:
    queries = Queries()
    failed, other = queries.has(T, 0, 5), queries.has(T, 1, 6)
    queries.broker.fail_partition(*failed)
    assert await sizes(queries, [failed, other]) == {other: size(6)}


async def test_a_future_log_does_not_count() -> None:
    queries = Queries()
    moved = queries.has(T, 0, 5)
    queries.future = (ReplicaLog(T, 0, 3, 2, True), ReplicaLog(T, 1, 3, 2, True))
    assert await sizes(queries, [moved, TopicPartition(T, 1)]) == {moved: size(5)}


@pytest.mark.parametrize(
    ("count", "partitions_max", "requests"),
    [(1, 1, [1]), (2, 1, [1, 1]), (3, 3, [3]), (4, 3, [3, 1]), (7, 3, [3, 3, 1])],
)
async def test_no_request_names_more_partitions_than_the_bound(
    count: int, partitions_max: int, requests: list[int]
) -> None:
    queries = Queries()
    wanted = [queries.has(f"t{i % 2}", i, i) for i in range(count)]
    assert await sizes(queries, wanted, partitions_max) == {p: size(p.partition) for p in wanted}
    assert [sum(map(len, request.values())) for request in queries.requests] == requests


async def test_partitions_of_as_many_topics_fit_into_one_response() -> None:
    queries = Queries()
    wanted = [queries.has(f"t{i}", 0, i) for i in range(PARTITIONS_PER_REQUEST_MAX)]
    queries.future = tuple(ReplicaLog(topic, 0, 1, 1, True) for topic, _ in wanted)
    assert len(await sizes(queries, wanted)) == len(wanted)
    assert len(queries.requests) == 1


async def test_a_bound_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="partitions_max is 0: give a request at least 1"):
        await sizes(Queries(), [TopicPartition(T, 0)], 0)


async def test_the_error_of_a_broker_is_raised() -> None:
    queries = Queries()
    queries.broker.receive = lambda frame: b""  # type: ignore[method-assign]
    with pytest.raises(BrokerCallFailed):
        await sizes(queries, [TopicPartition(T, 0)])
