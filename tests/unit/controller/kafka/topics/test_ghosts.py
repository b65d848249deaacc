"""Partitions that brokers show and ZooKeeper lacks are ended when a term begins, and when their broker registers."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from controller.kafka.topics import ghosts
from controller.kafka.topics.ghosts import unknown_to
from metadata_store import paths
from metadata_store.codecs.topic import encode_topic
from metadata_store.port import ANY_VERSION
from state_machines.model.cluster import Cluster
from state_machines.model.types import LEADER_DURING_DELETE, Assignment, PartitionState, TopicAssignment
from testing.znodes import remove_by_hand
from tests.kit.controller_parts import UPDATE_METADATA
from tests.kit.controller_world import World, in_world
from tests.kit.polling import eventually
from tests.kit.role_kit import Kafka, kafka


def shown(cluster: Kafka) -> set[tuple[str, int]]:
    """Partitions that any broker shows."""
    return {(n, p) for b in cluster.brokers.values() for n, topic in b.topics.items() for p in topic.partitions}


async def cut(cluster: Kafka, name: str, kept: int) -> None:
    """Leaves a topic the first partitions, as a deletion that was left half done, or a tool."""
    node = await cluster.operator.get(paths.topic(name))
    assert node is not None
    for partition in range(kept, 3):
        await cluster.operator.delete(paths.state(name, partition), ANY_VERSION)
        await cluster.operator.delete(paths.partition(name, partition), ANY_VERSION)
    assignments = {p: Assignment((1, 2, 3)) for p in range(kept)}
    await cluster.operator.set(paths.topic(name), encode_topic(assignments, bytes(15) + b"o"), ANY_VERSION)


async def test_a_new_term_ends_what_brokers_show_and_zookeeper_lacks(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        await cluster.topic("orders", (1, 2, 3), (1, 2, 3), (1, 2, 3))
        await cluster.topic("gone", (1, 2, 3))
        await cluster.take_over()
        async with cluster.daemon(queries=True) as daemon:
            await cluster.serving(daemon)
            await eventually(lambda: len(shown(cluster)) == 4)
        await remove_by_hand(cluster.operator, "gone")
        await cut(cluster, "orders", 1)
        async with cluster.daemon(queries=True) as daemon:
            await cluster.serving(daemon)
            await eventually(lambda: shown(cluster) == {("orders", 0)})
            ids = {b.topics["orders"].topic_id for b in cluster.brokers.values()}
            assert ids == {bytes(15) + b"o"}, "no broker drops the id of the topic that stays"


async def test_one_task_queries_brokers_however_often_they_register(monkeypatch: pytest.MonkeyPatch) -> None:
    due, queried = {1, 2}, list[list[int]]()

    async def query(c: object, dial: object, brokers: list[int]) -> dict[int, str]:
        queried.append(brokers)
        if len(queried) == 2:
            due.update((2, 3))
        return {2: "it is silent"} if 2 in brokers else {}

    monkeypatch.setattr(ghosts, "_query", query)
    monkeypatch.setattr(ghosts, "PAUSE_S", 0.0)
    c = mock.Mock(channels=mock.Mock(quiesced=mock.AsyncMock()))
    await ghosts.find_ghosts(c, mock.Mock(), due)
    again = [[2]] * (ghosts.TRIES_MAX - 1)
    assert queried == [[1, 2], [2], [2, 3], *again], "a broker that registered again has all its tries"
    assert due == set()


async def test_a_topic_that_cannot_be_understood_is_not_said_to_be_lacking(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with kafka(tmp_path) as cluster:
        await cluster.topic("orders", (1, 2, 3), (1, 2, 3), (1, 2, 3))
        await cluster.topic("odd", (1, 2, 3))
        await cluster.take_over()
        async with cluster.daemon(queries=True) as daemon:
            await cluster.serving(daemon)
            await eventually(lambda: len(shown(cluster)) == 4)
        await cluster.operator.set(paths.topic("odd"), b"{", ANY_VERSION)
        await cut(cluster, "orders", 1)
        async with cluster.daemon(queries=True) as daemon:
            await cluster.serving(daemon)
            await eventually(lambda: shown(cluster) == {("orders", 0), ("odd", 0)})
    assert "broker 1 shows 2 partitions that ZooKeeper lacks, the first is orders-1" in caplog.text


async def test_more_than_zookeeper_has_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ghosts, "MANY", 1)
    async with kafka(tmp_path) as cluster:
        await cluster.topic("orders", (1, 2, 3), (1, 2, 3), (1, 2, 3))
        await cluster.take_over()
        async with cluster.daemon(queries=True) as daemon:
            await cluster.serving(daemon)
            await eventually(lambda: len(shown(cluster)) == 3)
        await cut(cluster, "orders", 1)
        async with cluster.daemon(queries=True) as daemon:
            await cluster.serving(daemon)
            await eventually(lambda: "find out whether ZooKeeper was restored from an old copy" in caplog.text)
            assert len(shown(cluster)) == 3


def topic(name: str, *partitions: int) -> TopicAssignment:
    return TopicAssignment(name, name.encode().ljust(16), {p: Assignment((1, 2)) for p in partitions}, 0, 7)


def test_only_what_the_model_lacks_is_entered_as_removed() -> None:
    cluster = Cluster()
    cluster.observe_topic(topic("t", 0, 1))
    found = unknown_to(cluster, {"t": [0, 1, 2], "u": [0]})
    assert found == {"t": {2}, "u": {0}}
    rows = [i for name, numbers in found.items() for i in cluster.observe_ghosts(name, numbers)]
    assert [str(cluster.name(i)) for i in rows] == ["t-2", "u-0"]
    for i in rows:
        assert (cluster.rows[i].state, cluster.rows[i].leader) == (PartitionState.NON_EXISTENT, LEADER_DURING_DELETE)
        assert cluster.rows[i].is_removed
    assert (cluster.find("t", 2), cluster.topic("u"), cluster.present) == (None, None, 2)
    assert cluster.observe_ghosts("t", [1, 3]) == [4], "partition 1 is there by now"
    cluster.observe_topic(topic("u", 0))
    assert cluster.find("u", 0) == 5


async def three(w: World) -> None:
    await w.topic("t", (1, 2), (2, 3), (3, 1), leaders=True)
    await w.serve()
    w.forget()


@in_world(before=three)
async def test_partitions_of_a_topic_that_vanished_do_not_show_in_the_next_one_of_its_name(w: World) -> None:
    await w.delete_topic("t")
    await w.propagated()
    await w.topic("t", (1, 2))
    await w.propagated()
    for broker in (1, 2, 3):
        last = w.wires.last_sent(broker, UPDATE_METADATA)
        assert [last["t", p] for p in range(3)] == [(1, 0), (LEADER_DURING_DELETE, 0), (LEADER_DURING_DELETE, 0)]
    w.agreed()
