"""Counts over the partitions of a model: right, and never many rows in one turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial

import pytest

from controller.operator import counts as counts_module
from controller.operator.counts import Counted, Counts, Deletions, imbalance
from state_machines.decisions.deletion import advance, replicas_left
from state_machines.model.cluster import Cluster
from tests.kit.kafka.model import P, carried_out, die, make_cluster, topic_gone
from tests.kit.view_kit import several


async def test_a_large_model_is_counted_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = several(4, 5)
    exact = Counts()
    exact.count(cluster.rows)
    assert (exact.under_replicated, exact.not_preferred, exact.leads[1], exact.hosts[3]) == (4, 0, 20, 20)
    monkeypatch.setattr(counts_module, "TURN_ROWS", 7)
    counted = Counted()
    assert counted.of(cluster) is None, "not counted yet, and too large to be counted at once"
    await counted.refresh(cluster)
    found = counted.of(cluster)
    assert found is not None
    assert (found.under_replicated, found.leads, found.hosts) == (exact.under_replicated, exact.leads, exact.hosts)
    assert counted.of(several(4, 5)) is None, "another term's model"


def test_rows_of_vanished_topics_do_not_count() -> None:
    cluster = several(2, 3)
    topic_gone(cluster, "t00")
    found = Counted().of(cluster)
    assert found is not None
    assert (found.leads[1], found.under_replicated) == (3, 1)


async def test_a_scrape_of_a_counted_model_counts_no_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scrape shows the last count, at every size of the model."""
    cluster = make_cluster(P((1, 2), 1), P((2, 1), 2))
    counted = Counted()
    exact, _ = counted.seen(cluster)
    assert exact.leads == {1: 1, 2: 1}, "not counted yet, and small"
    await counted.refresh(cluster)
    monkeypatch.setattr(Counts, "count", None)
    die(cluster, 2)
    assert counted.seen(cluster)[0].leads == exact.leads
    monkeypatch.undo()
    assert counted.seen(make_cluster(P((1, 2), 1)))[0].leads == {1: 1}, "another term's model"


# -- queued deletions


class CountedAtOnce:
    """Records the number of rows of queued topics in each uninterrupted count."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[int] = []
        monkeypatch.setattr(counts_module, "replicas_left", self._left)

    def _left(self, cluster: Cluster, rows: Collection[int], *, ineligible: bool = False) -> int:
        self.rows.append(len(rows))
        return replicas_left(cluster, rows, ineligible=ineligible)


@pytest.mark.parametrize(("topics", "partitions"), [(4, 5), (1, 40)], ids=["many topics", "one large topic"])
async def test_queued_topics_are_counted_in_turns(
    monkeypatch: pytest.MonkeyPatch, topics: int, partitions: int
) -> None:
    cluster, at_once = several(topics, partitions), CountedAtOnce(monkeypatch)
    die(cluster, 3)
    queued = cluster.observe_deletions([topic.name for topic in cluster.topics][:3])
    carried_out(cluster, partial(advance, topics=queued))
    whole = Deletions.of(cluster)
    monkeypatch.setattr(counts_module, "TURN_DELETED_ROWS", 7)
    at_once.rows.clear()
    counted = Counted()
    await counted.refresh(cluster)
    assert max(at_once.rows) == 7
    assert counted.seen(cluster)[1] == whole
    topics_queued = len(queued)
    assert whole == Deletions(3 * topics_queued * partitions, topics_queued, topics_queued * partitions, 0)


async def test_the_first_scrape_of_a_term_counts_no_large_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, at_once = several(2, 5), CountedAtOnce(monkeypatch)
    cluster.observe_deletions(["t00", "t01"])
    monkeypatch.setattr(counts_module, "TURN_DELETED_ROWS", 9)
    counted = Counted()
    found, deletions = counted.seen(cluster)
    assert (at_once.rows, deletions, imbalance(found, deletions)) == ([], Deletions(), 0)
    await counted.refresh(cluster)
    assert counted.seen(cluster)[1] == Deletions.of(cluster) != Deletions()


async def test_a_topic_that_vanishes_between_two_turns_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = several(1, 20)
    cluster.observe_deletions(["t00"])
    monkeypatch.setattr(counts_module, "TURN_DELETED_ROWS", 7)
    asyncio.get_running_loop().call_soon(topic_gone, cluster, "t00")
    assert (await Deletions.in_turns(cluster)).replicas <= 7 * 3
