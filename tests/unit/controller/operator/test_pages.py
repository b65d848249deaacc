"""Pages, filters and items of partitions and topics, on models."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from controller.operator import partitions as pages
from controller.operator.counts import counted
from controller.operator.partitions import Only, PartitionQuery, partition_item, partition_page, topic_page
from state_machines.model.cluster import Cluster
from state_machines.model.min_isr import MinIsr
from state_machines.model.types import Assignment
from tests.kit.kafka.model import P, die, make_cluster, topic_gone
from tests.kit.view_kit import several


def walk(cluster: Cluster, query: PartitionQuery, min_isr: MinIsr | None = None) -> tuple[list[str], int]:
    """Reads all pages; returns the partitions in order, and the number of pages."""
    known = min_isr or MinIsr(None, {})
    seen: list[str] = []
    for number in range(1, 1000):
        page = partition_page(cluster, query, known)
        assert len(page.items) <= query.limit
        seen += [f"{item.topic}-{item.partition}" for item in page.items]
        if page.next is None:
            return seen, number
        query = query._replace(after=page.next)
    raise AssertionError("the pages do not end")


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_pages_of_partitions_meet_without_gap_or_overlap(limit: int) -> None:
    cluster = several(5, 3)
    every = [f"t{t:02}-{p}" for t in range(5) for p in range(3)]
    assert walk(cluster, PartitionQuery(None, frozenset(), limit, None))[0] == every
    assert walk(cluster, PartitionQuery("t03", frozenset(), limit, None))[0] == every[9:12]


def test_a_page_scans_a_bounded_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "SCANNED_ROWS_MAX", 4)
    cluster = several(5, 3)
    seen, number = walk(cluster, PartitionQuery(None, frozenset({Only.UNDER_REPLICATED}), 100, None))
    assert seen == [f"t{t:02}-1" for t in range(5)]
    assert number == 4
    assert [len(topic_page(cluster, 100, after).items) for after in (None, "t01", "t03")] == [2, 2, 1]


def test_a_topic_that_vanishes_between_two_pages_is_skipped() -> None:
    cluster = several(3, 2)
    page = partition_page(cluster, PartitionQuery(None, frozenset(), 3, None), MinIsr(None, {}))
    assert page.next == "t01:0"
    topic_gone(cluster, "t01")
    rest = partition_page(cluster, PartitionQuery(None, frozenset(), 9, page.next), MinIsr(None, {}))
    assert [item.topic for item in rest.items] == ["t02", "t02"]


def test_filters_select_partitions_by_their_names() -> None:
    cluster = make_cluster(P((1, 2), leader=1), P((2, 1), leader=1), P((3, 1), leader=3), P((1, 3), leader=1, isr=(1,)))
    die(cluster, 3)
    cluster.load_leadership([2], [P((3, 1), leader=3).leadership()])

    def named(*only: Only, min_isr: MinIsr | None = None) -> list[str]:
        return walk(cluster, PartitionQuery("t", frozenset(only), 10, None), min_isr)[0]

    assert named(Only.OFFLINE) == ["t-2"]
    assert named(Only.NOT_PREFERRED) == ["t-1"]
    assert named(Only.UNDER_REPLICATED) == ["t-3"]
    assert named(Only.OFFLINE, Only.UNDER_REPLICATED) == ["t-2", "t-3"]
    assert named(Only.AT_MIN_ISR, min_isr=MinIsr(1, {})) == ["t-3"]
    assert named(Only.AT_MIN_ISR, min_isr=MinIsr(1, {"t": 2})) == ["t-0", "t-1", "t-2"], "t-3 is below it"
    assert named(Only.AT_MIN_ISR, min_isr=MinIsr(3, {})) == ["t-0", "t-1", "t-2"], "never more than the replicas"


def test_a_reassignment_alone_makes_no_partition_under_replicated() -> None:
    """Kafka's ``OngoingReassignmentState.replicationFactor`` leaves out the replicas that are being added."""
    cluster = make_cluster(P((1, 2), leader=1), P((1, 2), leader=1, isr=(1,)), P((1, 2), leader=1))
    for i, added in enumerate([(3, 4), (3, 4), ()]):
        cluster.rows[i] = replace(
            cluster.rows[i], assignment=Assignment((*added, 1, 2), added, (1, 2) if added else ())
        )

    def named(only: Only) -> list[str]:
        return walk(cluster, PartitionQuery("t", frozenset({only}), 10, None), MinIsr(2, {}))[0]

    assert named(Only.UNDER_REPLICATED) == ["t-1"], "its origin lacks broker 2"
    assert named(Only.AT_MIN_ISR) == ["t-0", "t-2"]
    assert named(Only.UNDER_MIN_ISR) == ["t-1"]
    assert named(Only.NOT_PREFERRED) == [], "a replica that is being added is not preferred yet"
    found = counted(cluster.rows, lambda _: 2)
    assert (found.under_replicated, found.under_min_isr, found.not_preferred) == (1, 1, 0)
    [moving, lacking] = [partition_item(cluster, i, 2) for i in (0, 1)]
    assert [(item.under_replicated, item.preferred) for item in (moving, lacking)] == [(False, True), (True, True)]
    assert (moving.at_min_isr, lacking.at_min_isr, lacking.under_min_isr) == (True, False, True)
    described = topic_page(cluster, 1, None).items[0]
    assert (described.replication_factor, described.under_replicated, described.not_preferred) == (2, 1, 0)
