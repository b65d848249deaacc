"""Explanations of partitions by a whole daemon, with the journal and min ISR."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from controller.http.documents import ViewRefused
from controller.journal.segments import SegmentName, folder_in
from controller.operator.explain import history_rows
from controller.operator.partitions import Only, PartitionQuery
from controller.operator.view import View
from metadata_store import paths
from metadata_store.port import ANY_VERSION
from state_machines.journal.events import Row
from testing.znodes import create_topic
from tests.kit.deadlines import eventually
from tests.kit.kafka.role import DAEMON, kafka, settings_for
from tests.kit.view_kit import dies, governed


async def test_an_explanation_names_the_rule_and_brokers_without_the_change(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, daemon, view):
        await dies(cluster, 1)
        await eventually(lambda: view.partitions.describe_partition("orders", 0).leader == 2)
        found = await view.explanations.explain("orders", 0)
        assert "in this term; last change: leader lost: first live replica of the ISR leads" in found.leader_because
        assert "1 is not: its broker is dead since 20" in found.isr_because
        assert "acks=all" not in found.isr_because, "two of three replicas are in sync, one is required"
        await eventually(lambda: not daemon.term or not daemon.term.controller.channels.unacknowledged_by(0))
        assert (await view.explanations.explain("orders", 0)).waiting_for == []
        cluster.brokers[3].hold()
        await dies(cluster, 2)
        await eventually(lambda: view.partitions.describe_partition("orders", 0).leader == 3)
        assert (await view.explanations.explain("orders", 0)).waiting_for == [3]
        cluster.brokers[3].let_go.set()


async def test_an_explanation_agrees_with_a_verification(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, _, view):
        assert (await view.explanations.explain("orders", 0)).differs == []
        await cluster.operator.delete(paths.state("orders", 0), ANY_VERSION)
        await eventually(lambda: view.partitions.describe_partition("orders", 0).leader == 1)
        [told] = (await view.explanations.explain("orders", 0)).differs
        assert told.startswith("its state znode is gone")
        assert "restart the daemon, the next term creates it anew" in told
        assert [d.field for d in (await view.verifications.verify()).differences if d.broker is None] == [
            "leader",
            "state znode",
        ]


async def test_an_explanation_includes_former_terms(tmp_path: Path) -> None:
    folder = folder_in(settings_for(tmp_path).state.directory)
    folder.mkdir(parents=True)
    row = Row(1, "c", DAEMON, 1, 1, 0, 0, "LEADER", "orders", 0, leader0=3, leader1=1, why="brokers [3] are gone")
    (folder / str(SegmentName(1, 1, 0))).write_bytes(msgspec.json.encode(row) + b"\n")
    async with governed(tmp_path) as (_, _, view):
        [before] = (await view.explanations.explain("orders", 0)).history
        assert (before.controller_epoch, before.told) == (1, "leader 3 -> 1: brokers [3] are gone")
        assert (await view.explanations.explain("orders", 1)).history == []


def test_an_explanation_names_the_broker_of_a_replica() -> None:
    row = Row(1, "c", DAEMON, 1, 1, 0, 0, "REPLICA", "orders", 0, broker=2, why="a replica's broker died")
    [shown] = history_rows([row])
    assert shown.told == "replica on broker 2: a replica's broker died"


async def test_an_unreadable_journal_leaves_an_explanation_without_history(tmp_path: Path) -> None:
    state = settings_for(tmp_path).state.directory
    state.mkdir(parents=True, exist_ok=True)
    (state / "events").write_text("not a folder")
    async with governed(tmp_path) as (_, _, view):
        assert (await view.explanations.explain("orders", 0)).history == []


async def test_partitions_at_and_below_min_isr_are_known_after_a_response_of_a_broker(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster, cluster.daemon() as daemon:
        await create_topic(cluster.operator, "strict", {0: (1, 2)}, bytes(16), {"min.insync.replicas": "3"})
        await cluster.topic("orders", (1, 2, 3))
        await cluster.take_over()
        await cluster.serving(daemon)
        view = View(daemon, cluster.dial, cluster.release_of)
        at, below = (PartitionQuery(None, frozenset({o}), 10, None) for o in (Only.AT_MIN_ISR, Only.UNDER_MIN_ISR))
        for query in (at, below):
            with pytest.raises(ViewRefused, match=r"min\.insync\.replicas is not known yet"):
                view.partitions.list_partitions(query)
        assert (
            view.whole.status().under_min_isr_partitions,
            view.partitions.describe_topic("strict").under_min_isr,
        ) == (None, None)
        assert view.partitions.describe_partition("orders", 0).at_min_isr is None
        await view.refresh()
        assert view.partitions.list_partitions(below).items == [], "min ISR 3 of two replicas means both"
        assert [p.topic for p in view.partitions.list_partitions(at).items] == ["strict"]
        assert view.partitions.describe_partition("orders", 0).at_min_isr is False
        await dies(cluster, 2)
        await eventually(lambda: view.whole.status().under_min_isr_partitions == 1)

        async def shown() -> bool:
            await view.refresh()
            return view.gauges().under_min_isr_partitions == 1

        await eventually(shown)
        assert [p.topic for p in view.partitions.list_partitions(below).items] == ["strict"]
        assert [t.under_min_isr for t in view.partitions.list_topics(10, None).items] == [0, 1]
        assert view.partitions.describe_topic("strict").under_min_isr == 1
        assert daemon.term is not None
        assert daemon.term.cluster.min_isr == view.status_reader.min_isr, "log lines have the same"
        found = await view.explanations.explain("strict", 0)
        assert "acks=all producers wait: 1 of 2 required replicas in sync" in found.isr_because
        assert (found.partition.under_min_isr, found.partition.min_isr) == (True, 3)
