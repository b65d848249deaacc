"""Sizes and offsets of replicas: of all for ``regent loads``, and of chosen ones, which a simulated broker sends."""

from __future__ import annotations

import asyncio
import csv
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from brokers import loads
from brokers.client import BrokerCallFailed, ClusterMetadata, PartitionMetadata, TopicMetadata
from brokers.loads import PARTITIONS_PER_REQUEST_MAX, ReplicaSize
from brokers.loads import PARTITIONS_PER_REQUEST_MAX as SIZES_PER_REQUEST_MAX
from brokers.queries import BrokerQueries
from brokers.wire.log_dirs import REPLICAS_MAX, encode_log_dirs, read_log_dirs
from brokers.wire.primitives import BadMessage
from cli.exit_codes import Exit, Failure
from cli.loads import FIELDS, Result, write_loads
from state_machines.model.types import Broker, LogDirectory, ReplicaLog, TopicPartition
from testing.simulated.broker import SimulatedBroker
from testing.simulated.hosting import ONLINE_DIRECTORY, Replica
from tests.kit.command import items, regent, unwrapped


class Cluster:
    """Brokers 1 and 2, and broker 3 that is not registered; topic ``t`` has partitions on all of them."""

    def __init__(self, partitions: int = 3) -> None:
        self.partitions = partitions
        self.silent: set[int] = set()
        self.without_log: set[tuple[int, int]] = set()
        self.refused: set[int] = set()
        self.future: set[int] = set()
        self.requests: list[int] = []
        self.registered: tuple[int, ...] = (1, 2)

    @asynccontextmanager
    async def dial(self, broker: Broker) -> Any:
        if broker.id in self.silent:
            raise BrokerCallFailed("it does not answer")
        yield Queries(self, broker.id)

    def metadata(self) -> ClusterMetadata:
        placed = {p: (1 + p % 2, 3 - (1 + p % 2), 3) for p in range(self.partitions)}
        found = {p: PartitionMetadata(0, r[0], 1, r, r, ()) for p, r in placed.items()}
        return ClusterMetadata("c", 1, (), {"t": TopicMetadata(0, None, found)})


class Queries:
    def __init__(self, cluster: Cluster, broker: int) -> None:
        self._cluster = cluster
        self._broker = broker

    async def metadata(self, topics: Iterable[str] | None = None) -> ClusterMetadata:
        return self._cluster.metadata()

    async def replica_logs(
        self, partitions: Mapping[str, Collection[int]] | None, replicas_max: int = 0
    ) -> Sequence[LogDirectory]:
        assert partitions is not None
        self._cluster.requests.append(sum(map(len, partitions.values())))
        there = [p for p in partitions["t"] if (self._broker, p) not in self._cluster.without_log]
        logs = [ReplicaLog("t", p, 100 * p + self._broker, 0, False) for p in there]
        logs += [ReplicaLog("t", p, 1, 0, True) for p in there if p in self._cluster.future]
        return (LogDirectory("/data", 0, tuple(logs)),)

    async def offsets(self, partitions: Mapping[str, Collection[int]], *, earliest: bool = False) -> dict[Any, Any]:
        found = {("t", p): 10 if earliest else 20 + p for p in partitions["t"]}
        return {name: "NO" if name[1] in self._cluster.refused else offset for name, offset in found.items()}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()

    @asynccontextmanager
    async def role_at(_: object) -> Any:
        yield SimpleNamespace(zk=None)

    async def brokers(_: object) -> Any:
        return SimpleNamespace(brokers={b: Broker(b, 1, ()) for b in made.registered})

    async def topics(_: object) -> list[str]:
        return ["t"]

    monkeypatch.setattr("cli.loads.role_at", role_at)
    monkeypatch.setattr("cli.loads.read_brokers", brokers)
    monkeypatch.setattr("cli.loads.topic_names", topics)
    monkeypatch.setattr("cli.loads.dial_for", lambda _: made.dial)
    return made


def written(into: Path) -> Result:
    settings: Any = None
    return asyncio.run(write_loads(settings, into))


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_each_log_has_a_row_and_leaders_have_offsets(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "loads.csv"
    cluster.future = {2}
    found = written(path)
    assert (found.rows, found.brokers, found.silent) == (8, 2, [])
    [absent] = found.lacking
    assert (absent.broker, absent.why, absent.partitions) == (3, "it is not registered", 3)
    assert absent.named == ["t-0", "t-1", "t-2"]
    read = rows(path)
    assert tuple(read[0]) == FIELDS
    at = {(row["partition"], row["broker"], row["is_future"]): row for row in read}
    lead, follow, future = at["2", "1", "false"], at["2", "2", "false"], at["2", "1", "true"]
    assert (lead["size_bytes"], lead["log_dir"], lead["is_leader"]) == ("201", "/data", "true")
    assert (lead["start_offset"], lead["end_offset"]) == ("10", "22")
    assert int(lead["time_ms"]) > 1_600_000_000_000
    assert (follow["size_bytes"], follow["is_leader"], follow["end_offset"]) == ("202", "false", "")
    assert (future["size_bytes"], future["end_offset"]) == ("1", "")
    assert list(tmp_path.iterdir()) == [path]


def test_json_lines_have_the_same(cluster: Cluster, tmp_path: Path) -> None:
    written(tmp_path / "loads.csv")
    written(tmp_path / "loads.jsonl")
    lines = [msgspec.json.decode(line) for line in (tmp_path / "loads.jsonl").read_bytes().splitlines()]
    assert len(lines) == len(rows(tmp_path / "loads.csv")) == 6
    assert {line["end_offset"] for line in lines if "end_offset" in line} == {20, 21, 22}


def test_requests_are_bounded(cluster: Cluster, tmp_path: Path) -> None:
    cluster.partitions = 2 * PARTITIONS_PER_REQUEST_MAX + 1
    assert written(tmp_path / "loads.csv").rows == 2 * cluster.partitions
    assert sorted(cluster.requests) == [1, 1, *[PARTITIONS_PER_REQUEST_MAX] * 4]


def test_what_is_missing_is_named_and_the_rest_is_there(cluster: Cluster, tmp_path: Path) -> None:
    cluster.without_log, cluster.refused, cluster.silent = {(1, 0)}, {2}, {2}
    found = written(tmp_path / "loads.csv")
    assert found.file == str(tmp_path / "loads.partial.csv")
    assert (found.rows, found.silent) == (2, [2])
    told = [(one.broker, one.why, one.named) for one in found.lacking]
    assert told == [
        (1, "it has no log, or its log directory is offline", ["t-0"]),
        (1, "their offsets are not known (NO)", ["t-2"]),
        (2, "it does not answer", ["t-0", "t-1", "t-2"]),
        (3, "it is not registered", ["t-0", "t-1", "t-2"]),
    ]
    assert {(row["partition"], row["broker"]) for row in rows(tmp_path / "loads.partial.csv")} == {
        ("1", "1"),
        ("2", "1"),
    }


def test_without_any_broker_the_old_file_stays(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "loads.csv"
    path.write_text("old")
    cluster.silent = {1, 2}
    with pytest.raises(Failure, match="no broker responds; broker 1: it does not answer"):
        written(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("registered", "told"), [((1, 2, 4), "no broker responds; broker 1"), ((4,), "no broker that has replicas")]
)
def test_where_only_a_broker_without_replicas_responds_the_old_file_stays(
    cluster: Cluster, tmp_path: Path, registered: tuple[int, ...], told: str
) -> None:
    path = tmp_path / "loads.csv"
    path.write_text("old")
    cluster.registered, cluster.silent = registered, {1, 2}
    with pytest.raises(Failure, match=told):
        written(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_other_users_do_not_read_the_file_and_a_link_in_its_place_is_replaced(cluster: Cluster, tmp_path: Path) -> None:
    path, other = tmp_path / "loads.csv", tmp_path / "other"
    other.write_text("of another user")
    path.symlink_to(other)
    written(path)
    assert (path.is_symlink(), path.stat().st_mode & 0o777) == (False, 0o640)
    assert other.read_text() == "of another user"


def test_a_folder_that_is_not_there_is_a_failure_with_a_remedy(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(Failure, match="No such file or directory") as failed:
        written(tmp_path / "absent" / "loads.csv")
    assert "--into" in failed.value.remedy


def test_a_reading_that_ends_early_leaves_the_old_file(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "loads.csv"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("cli.drafts.os.fsync", full)
    with pytest.raises(Failure, match="No space left on device"):
        written(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_command_tells_what_is_missing(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.session.Session.settings", lambda _: SimpleNamespace(settings=None))
    path = tmp_path / "loads.csv"
    done = regent("loads", "--into", path)
    assert done.stdout == f"{path}: 6 logs of 2 brokers\n"
    assert "broker 3 lacks 3 partitions, it is not registered: t-0, t-1, t-2" in unwrapped(done.stderr)
    cluster.silent = {2}
    whole = path.read_text()
    failed = regent("loads", "--into", path, code=Exit.FAILED)
    lacks = f"brokers 2 did not respond: {tmp_path / 'loads.partial.csv'} lacks them"
    assert f"{lacks}, {path} was not written" in unwrapped(failed.stderr)
    assert path.read_text() == whole
    [item] = items("loads", "--into", path, "--partial", code=Exit.FAILED)
    assert len(rows(path)) == 3
    assert (item["rows"], item["silent"], len(item["lacking"])) == (3, [2], 2)


T, U = "t", "u"


class ChosenQueries:
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
        except BadMessage as error:
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
    queries: ChosenQueries, partitions: Iterable[TopicPartition], partitions_max: int = SIZES_PER_REQUEST_MAX
) -> dict[TopicPartition, ReplicaSize]:
    """Requests the sizes; no other query is sent."""
    return await loads.sizes(cast("BrokerQueries", queries), partitions, partitions_max)


def size(size_bytes: int, offset_lag: int = 0) -> ReplicaSize:
    return ReplicaSize(size_bytes, offset_lag, ONLINE_DIRECTORY)


async def test_sizes_of_the_requested_partitions_alone_are_returned() -> None:
    queries = ChosenQueries()
    first, second = queries.has(T, 0, 5), queries.has(U, 7, 2**40, sent=False)
    queries.has(T, 1, 6)
    missing = TopicPartition(U, 8)
    assert await sizes(queries, [second, first, missing, first]) == {first: size(5), second: size(2**40, -1)}
    assert queries.requests == [{T: [0], U: [7, 8]}], "one request, each partition once"
    assert await sizes(queries, []) == {}
    assert len(queries.requests) == 1


async def test_a_replica_on_a_failed_directory_is_left_out() -> None:
    queries = ChosenQueries()
    failed, other = queries.has(T, 0, 5), queries.has(T, 1, 6)
    queries.broker.fail_partition(*failed)
    assert await sizes(queries, [failed, other]) == {other: size(6)}


async def test_a_future_log_does_not_count() -> None:
    queries = ChosenQueries()
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
    queries = ChosenQueries()
    wanted = [queries.has(f"t{i % 2}", i, i) for i in range(count)]
    assert await sizes(queries, wanted, partitions_max) == {p: size(p.partition) for p in wanted}
    assert [sum(map(len, request.values())) for request in queries.requests] == requests


async def test_partitions_of_as_many_topics_fit_into_one_response() -> None:
    queries = ChosenQueries()
    wanted = [queries.has(f"t{i}", 0, i) for i in range(SIZES_PER_REQUEST_MAX)]
    queries.future = tuple(ReplicaLog(topic, 0, 1, 1, True) for topic, _ in wanted)
    assert len(await sizes(queries, wanted)) == len(wanted)
    assert len(queries.requests) == 1


async def test_a_bound_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="partitions_max is 0: give a request at least 1"):
        await sizes(ChosenQueries(), [TopicPartition(T, 0)], 0)


async def test_the_error_of_a_broker_is_raised() -> None:
    queries = ChosenQueries()
    queries.broker.receive = lambda frame: b""  # type: ignore[method-assign]
    with pytest.raises(BrokerCallFailed):
        await sizes(queries, [TopicPartition(T, 0)])
