"""Pages through topics and partitions of a model, without I/O and bounded in rows per call."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from controller.http.errors import NotFound
from controller.http.models import Partition, Topic
from controller.http.ports import Only, PartitionPage, PartitionQuery, TopicPage
from controller.operator.items import partition_item, topic_item
from state_machines.model.cluster import Cluster
from state_machines.model.min_isr import UNKNOWN, MinIsr, at, under
from state_machines.model.types import PartitionRow, PartitionState
from state_machines.model.types import Topic as TopicRows

SCANNED_ROWS_MAX: Final = 20_000
"""Rows that one page scans at most, even where few of them match."""


def find_topic(cluster: Cluster, name: str) -> TopicRows:
    """Returns the present topic of a name; raises :class:`NotFound`."""
    found = cluster.topic(name)
    if found is None:
        raise NotFound(f"topic {name} does not exist", "see 'regent list topics'")
    return found


def find_partition(cluster: Cluster, topic: str, partition: int) -> int:
    """Returns the row index of a partition; raises :class:`NotFound`."""
    found = cluster.row_in(find_topic(cluster, topic), partition)
    if found is None:
        raise NotFound(f"topic {topic} has no partition {partition}", f"see 'regent describe topic {topic}'")
    return found


def topic_page(cluster: Cluster, limit: int, after: str | None, min_isr: MinIsr = UNKNOWN) -> TopicPage:
    """Returns a page of topics by name."""
    names = _names_after(cluster, after)
    items: list[Topic] = []
    scanned = 0
    for name in names:
        if len(items) >= limit or scanned >= SCANNED_ROWS_MAX:
            return TopicPage(items, items[-1].name)
        topic = find_topic(cluster, name)
        items.append(topic_item(cluster, topic, min_isr.of(topic.name)))
        scanned += len(topic.rows)
    return TopicPage(items, None)


def partition_page(cluster: Cluster, query: PartitionQuery, min_isr: MinIsr) -> PartitionPage:
    """Returns a page of partitions by topic and number. ``next`` is the last partition that was scanned."""
    items: list[Partition] = []
    last = 0
    for scanned, i in enumerate(_rows_after(cluster, query)):
        if len(items) >= query.limit or scanned >= SCANNED_ROWS_MAX:
            return PartitionPage(items, _cursor(cluster, last))
        last = i
        row = cluster.rows[i]
        if query.broker is not None and query.broker not in row.assignment.replicas:
            continue
        least = min_isr.of(cluster.topics[row.topic].name)
        refused = Only.REFUSED in query.only and any(cluster.refusals.refusing(i, row.assignment.replicas))
        if refused or not query.only or matches(row, query.only, least):
            items.append(partition_item(cluster, i, least))
    return PartitionPage(items, None)


def matches(row: PartitionRow, only: frozenset[Only], min_isr: int | None) -> bool:
    """Returns whether the row matches any of the filters."""
    if Only.OFFLINE in only and row.state is not PartitionState.ONLINE:
        return True
    if Only.UNDER_REPLICATED in only and row.under_replicated:
        return True
    if Only.NOT_PREFERRED in only and not row.led_as_preferred:
        return True
    if Only.UNDER_MIN_ISR in only and under(row, min_isr):
        return True
    return Only.AT_MIN_ISR in only and at(row, min_isr)


def _names_after(cluster: Cluster, after: str | None) -> Sequence[str]:
    names = sorted(cluster.topic_index)
    return names if after is None else names[bisect_right(names, after) :]


def _rows_after(cluster: Cluster, query: PartitionQuery) -> Iterator[int]:
    """Yields rows behind the cursor, of one topic or of all topics by name."""
    name, _, number = (query.after or "").rpartition(":")
    done = int(number) if name and number.isdecimal() else -1
    if query.topic is not None:
        names: Sequence[str] = [query.topic]
        find_topic(cluster, query.topic)
    else:
        names = [name, *_names_after(cluster, name)] if name else _names_after(cluster, None)
    for topic in names:
        found = cluster.topic(topic)
        for i in found.rows if found is not None else ():
            if topic != name or cluster.rows[i].partition > done:
                yield i


def _cursor(cluster: Cluster, i: int) -> str:
    named = cluster.name(i)
    return f"{named.topic}:{named.partition}"
