"""Counts over topics that are being deleted: right, and never many partitions in one turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from controller.operator import counts as counts_module
from controller.operator.counts import Counted, Deletions, imbalance
from state_machines.decisions.deletion import replicas_left
from state_machines.model.cluster import Cluster
from tests.core.model import die
from tests.core.test_view import several


class CountedAtOnce:
    """How many rows of queued topics were counted at once, each time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[int] = []
        monkeypatch.setattr(counts_module, "replicas_left", self._left)

    def _left(self, cluster: Cluster, rows: Collection[int], *, ineligible: bool = False) -> int:
        self.rows.append(len(rows))
        return replicas_left(cluster, rows, ineligible=ineligible)


@pytest.mark.parametrize(("topics", "partitions"), [(4, 5), (1, 40)], ids=["many topics", "one large topic"])
async def test_topics_that_are_being_deleted_are_counted_in_turns(
    monkeypatch: pytest.MonkeyPatch, topics: int, partitions: int
) -> None:
    cluster, at_once = several(topics, partitions), CountedAtOnce(monkeypatch)
    die(cluster, 3)
    queued = cluster.observe_deletions([topic.name for topic in cluster.topics][:3])
    whole = Deletions.of(cluster)
    monkeypatch.setattr(counts_module, "TURN_DELETED_ROWS", 7)
    at_once.rows.clear()
    counted = Counted()
    await counted.refresh(cluster)
    assert max(at_once.rows) == 7
    assert counted.seen(cluster)[1] == whole
    assert whole.replicas == 3 * len(queued) * partitions


async def test_the_first_scrape_of_a_term_counts_no_large_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, at_once = several(2, 5), CountedAtOnce(monkeypatch)
    cluster.observe_deletions(["t00", "t01"])
    monkeypatch.setattr(counts_module, "TURN_DELETED_ROWS", 9)
    counted = Counted()
    found, deletions = counted.seen(cluster)
    assert (at_once.rows, deletions, imbalance(found, deletions)) == ([], Deletions(), 0)
    await counted.refresh(cluster)
    assert counted.seen(cluster)[1] == Deletions.of(cluster) != Deletions()


async def test_a_topic_that_vanishes_between_two_turns_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = several(1, 20)
    cluster.observe_deletions(["t00"])
    monkeypatch.setattr(counts_module, "TURN_DELETED_ROWS", 7)
    asyncio.get_running_loop().call_soon(cluster.observe_topic_gone, "t00")
    assert (await Deletions.in_turns(cluster)).replicas <= 7 * 3
