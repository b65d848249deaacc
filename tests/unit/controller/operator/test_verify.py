"""Verification of a whole cluster: a difference that stays is found, and a settled cluster is clean."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from brokers.client import PartitionMetadata
from controller.daemon.daemon import Daemon
from controller.operator import comparison
from controller.operator import verify as module
from controller.operator.verify import Verdict, verify
from metadata_store import paths
from metadata_store.codecs.topic import encode_state
from metadata_store.port import ANY_VERSION
from state_machines.model.cluster import Cluster
from tests.kit.deadlines import eventually
from tests.kit.kafka.role import DAEMON, Kafka, kafka

SETTLE_S = 0.01
"""Long enough for one more pass, short for a difference that stays."""


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.01)


@asynccontextmanager
async def governed(folder: Path) -> AsyncIterator[tuple[Kafka, Daemon]]:
    """Runs three brokers with two topics, and a daemon that holds the role."""
    async with kafka(folder) as cluster, cluster.daemon() as daemon:
        await cluster.topic("orders", (1, 2, 3), (2, 3, 1))
        await cluster.topic("payments", (3, 1))
        await cluster.take_over()
        await cluster.serving(daemon)
        await eventually(lambda: all(len(b.topics) == 2 for b in cluster.brokers.values()))
        yield cluster, daemon


def memory_of(daemon: Daemon) -> Cluster:
    assert daemon.term is not None
    return daemon.term.cluster


async def look(cluster: Kafka, daemon: Daemon | None = None, settle_s: float = SETTLE_S) -> Verdict:
    memory = memory_of(daemon) if daemon is not None else None
    ibp = daemon.ibp if daemon is not None else (await cluster.context()).ibp
    return await verify(cluster.role(), cluster.dial, ibp, memory=memory, settle_s=settle_s)


def shown(verdict: Verdict) -> list[str]:
    return [f"{d.topic}-{d.partition} {d.field} {d.expected} {d.found} {d.broker}" for d in verdict.differences]


async def test_a_settled_cluster_is_clean_with_and_without_the_daemons_memory(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, daemon):
        for verdict in (await look(cluster, daemon), await look(cluster)):
            assert shown(verdict) == []
            assert verdict.clean
            assert (verdict.partitions, verdict.brokers) == (3, [1, 2, 3])


def change(broker_id: int, topic: str, partition: int, **fields: Any) -> Callable[[Kafka], None]:
    """Returns a change of a partition in the metadata of one broker."""

    def plant(cluster: Kafka) -> None:
        partitions = cluster.brokers[broker_id].topics[topic].partitions
        assert isinstance(partitions, dict)
        partitions[partition] = structs.replace(partitions[partition], **fields)

    return plant


def stray(cluster: Kafka) -> None:
    known = cluster.brokers[3].topics["orders"]
    cluster.brokers[3].topics["ghost"] = structs.replace(
        known, partitions={0: PartitionMetadata(0, 1, 0, (1,), (1,), ())}
    )


def other_controller(cluster: Kafka) -> None:
    cluster.brokers[2].controller_id = 3


def other_brokers(cluster: Kafka) -> None:
    cluster.brokers[2].live = frozenset({1, 2, DAEMON})


PLANTED: list[tuple[Callable[[Kafka], None], str]] = [
    (change(3, "orders", 1, leader_epoch=9), "orders-1 leader epoch 3 9 3"),
    (stray, "ghost--1 topic unknown known 3"),
    (other_controller, f"--1 controller {DAEMON} 3 2"),
    (other_brokers, f"--1 live brokers [1, 2, 3, {DAEMON}] [1, 2, {DAEMON}] 2"),
]


@pytest.mark.parametrize(("plant", "expected"), PLANTED, ids=[expected for _, expected in PLANTED])
async def test_a_difference_at_a_broker_is_found(tmp_path: Path, plant: Callable[[Kafka], None], expected: str) -> None:
    """The fields of partitions are compared in test_comparison.py."""
    async with governed(tmp_path) as (cluster, daemon):
        plant(cluster)
        for verdict in (await look(cluster, daemon), await look(cluster)):
            assert shown(verdict) == [expected]
            assert (verdict.total, verdict.clean) == (1, False)


async def test_a_write_that_the_daemon_missed_is_found(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, daemon):
        await cluster.operator.set(paths.state("orders", 0), encode_state(1, 4, (1, 2), 7), ANY_VERSION)
        found = shown(await look(cluster, daemon))
        for field in ("leader epoch 3 4", "isr (1, 2, 3) (1, 2)", "controller epoch 1 7", "version 0 1"):
            assert f"orders-0 {field} None" in found
        assert "orders-0 leader epoch 4 3 2" in found, "and every broker differs from it"


async def test_without_a_controller_due_elections_are_found_in_zookeeper(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        await cluster.topic("orders", (1, 2, 3), (2, 3, 1))
        await cluster.topic("fresh", (1, 2), leaders=False)
        await cluster.operator.set(paths.state("orders", 0), encode_state(9, 4, (2, 9), 1), ANY_VERSION)
        await cluster.operator.set(paths.state("orders", 1), b"{", ANY_VERSION)
        found = [line for line in shown(await look(cluster)) if line.endswith("None")]
        assert [line.split(" None")[0] for line in found if "state znode" not in line] == [
            "fresh-0 leader one of [1, 2], which are live never elected",
            "orders-0 leader one of [2], which are live and in sync 9, which is gone",
        ]
        assert any(line.startswith("orders-1 state znode readable ") for line in found)


async def test_a_difference_that_settles_in_time_does_not_count(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, daemon):
        right = cluster.brokers[2].topics["orders"]
        wrong = structs.replace(right.partitions[0], leader=2)
        looked = 0

        async def slowly(topics: Any = None) -> Any:
            nonlocal looked
            looked += 1
            late = looked <= 2
            cluster.brokers[2].topics["orders"] = structs.replace(
                right, partitions={**right.partitions, 0: wrong} if late else right.partitions
            )
            return await type(cluster.brokers[2]).metadata(cluster.brokers[2], topics)

        cluster.brokers[2].metadata = slowly  # type: ignore[method-assign]
        assert (await look(cluster, daemon, settle_s=10.0)).clean
        assert looked == 3, "the differing topic was compared again"


async def test_an_unreachable_broker_is_not_clean(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, daemon):
        cluster.brokers[2].silent = "127.0.0.1:9 cannot be reached"
        verdict = await look(cluster, daemon)
        assert (verdict.clean, dict(verdict.unreachable)) == (False, {2: "127.0.0.1:9 cannot be reached"})
        assert verdict.differences == []


async def test_listed_differences_are_bounded_and_all_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "DIFFERENCES_MAX", 2)
    async with governed(tmp_path) as (cluster, daemon):
        for broker in (1, 2, 3):
            change(broker, "orders", 0, leader_epoch=99)(cluster)
        verdict = await look(cluster, daemon)
        assert (len(verdict.differences), verdict.total) == (2, 3)


async def test_the_size_of_chunks_does_not_change_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_PARTITIONS_MAX", 1)
    monkeypatch.setattr(module, "CHUNK_TOPICS_MAX", 1)
    async with governed(tmp_path) as (cluster, daemon):
        assert (await look(cluster, daemon)).clean
        change(2, "payments", 0, leader=1)(cluster)
        assert shown(await look(cluster, daemon)) == ["payments-0 leader 3 1 2"]


async def test_a_controlled_shutdown_in_progress_is_no_difference(tmp_path: Path) -> None:
    """A broker that shuts down is still registered, and offline as a replica."""
    async with governed(tmp_path) as (cluster, daemon):
        memory_of(daemon).observe_shutting_down(3)
        for broker in cluster.brokers.values():
            for name, topic in broker.topics.items():
                offline = {p: structs.replace(m, offline=(3,)) for p, m in topic.partitions.items()}
                broker.topics[name] = structs.replace(topic, partitions=offline)
        assert (await look(cluster, daemon)).clean


@pytest.mark.seed("S4-78")
async def test_a_topic_that_is_being_deleted_is_left_out(tmp_path: Path) -> None:
    """Brokers forget it first, and its znodes go last, for as long as a broker is down."""
    async with governed(tmp_path) as (cluster, daemon):
        await cluster.brokers.pop(3).zk.close()
        await cluster.operator.create(paths.deletion("orders"), None)
        await eventually(lambda: all("orders" not in b.topics for b in cluster.brokers.values()))
        for verdict in (await look(cluster, daemon, 2.0), await look(cluster)):
            assert shown(verdict) == []
            assert verdict.partitions == 1
        assert await cluster.operator.exists(paths.state("orders", 0)) is not None
