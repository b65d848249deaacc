"""Lists topics and partitions of a model in pages, without I/O and bounded in rows per call."""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Final, NamedTuple

from fastapi import FastAPI, Query, Response
from pydantic import Field

from controller.http.documents import NotFound, ViewRefused, document
from controller.http.models import Document, Item
from controller.operator.present import Present
from state_machines.model.cluster import Cluster
from state_machines.model.min_isr import UNKNOWN, MinIsr, at, under
from state_machines.model.types import PartitionRow, PartitionState
from state_machines.model.types import Topic as TopicRows

PAGE_DEFAULT = 500
PAGE_MAX = 5_000
SCANNED_ROWS_MAX: Final = 20_000
"""Rows that one page scans at most, even where few of them match."""


class Topic(Item):
    """A topic in numbers."""

    name: str
    id: str | None = None
    partitions: int = 0
    replication_factor: int = 0
    offline: int = 0
    under_replicated: int = 0
    under_min_isr: int | None = Field(
        None, description="their producers with acks=all wait; absent until a broker has sent min.insync.replicas"
    )
    not_preferred: int = 0


class Partition(Item):
    """One partition. ``leader`` is absent while there is none; ``min_isr`` and both flags of it while it is unknown."""

    topic: str
    partition: int
    state: str
    leader: int | None = None
    leader_epoch: int = 0
    partition_epoch: int = 0
    controller_epoch: int = 0
    replicas: list[int]
    isr: list[int] = []
    adding: list[int] = []
    removing: list[int] = []
    offline_replicas: list[int] = []
    recovering: bool = False
    under_replicated: bool = False
    at_min_isr: bool | None = None
    under_min_isr: bool | None = None
    min_isr: int | None = Field(None, description="min.insync.replicas of the topic")
    preferred: bool = True
    refused_by: list[int] = Field([], description="brokers that refuse their replica, see regent explain")


class Only(StrEnum):
    """Filters of partitions; several together mean any of them."""

    OFFLINE = "offline"
    UNDER_REPLICATED = "under-replicated"
    AT_MIN_ISR = "at-min-isr"
    UNDER_MIN_ISR = "under-min-isr"
    NOT_PREFERRED = "not-preferred"
    REFUSED = "refused"


class TopicPage(NamedTuple):
    """Some topics, and the begin of the next page (None: this is the last)."""

    items: list[Topic]
    next: str | None


class PartitionPage(NamedTuple):
    """Some partitions, and the begin of the next page (None: this is the last)."""

    items: list[Partition]
    next: str | None


class PartitionQuery(NamedTuple):
    """A query of partitions: of one topic or of all, all or those that match a filter, at most ``limit`` a page.

    ``broker``: only those with a replica on that broker. ``after`` is the ``next`` of the page before. A page may be
    short, or empty, while ``next`` is set, because one call scans a bounded number of rows.
    """

    topic: str | None
    only: frozenset[Only]
    limit: int
    after: str | None
    broker: int | None = None


Limit = Annotated[int, Query(ge=1, le=PAGE_MAX)]
After = Annotated[str | None, Query(max_length=300)]
Filters = Annotated[list[Only] | None, Query(max_length=len(Only))]


class PartitionView:
    """The topics and partitions of a model as operators see them."""

    def __init__(self, present: Present) -> None:
        self._present = present

    def list_topics(self, limit: int, after: str | None) -> TopicPage:
        """Lists topics by name, from the one after ``after``."""
        return topic_page(self._present.cluster(), limit, after, self._present.reader.min_isr)

    def describe_topic(self, topic: str) -> Topic:
        """Describes one topic; raises :class:`NotFound`."""
        cluster = self._present.cluster()
        return topic_item(cluster, find_topic(cluster, topic), self._present.reader.min_isr.of(topic))

    def list_partitions(self, query: PartitionQuery) -> PartitionPage:
        """Lists partitions that match a query."""
        if query.only & {Only.AT_MIN_ISR, Only.UNDER_MIN_ISR} and self._present.reader.min_isr.default is None:
            raise ViewRefused(
                "min.insync.replicas is not known yet: no broker has sent its default", "try again in a few seconds"
            )
        return partition_page(self._present.cluster(), query, self._present.reader.min_isr)

    def describe_partition(self, topic: str, partition: int) -> Partition:
        """Describes one partition; raises :class:`NotFound`."""
        cluster = self._present.cluster()
        found = find_partition(cluster, topic, partition)
        return partition_item(cluster, found, self._present.reader.min_isr.of(topic))

    def stale(self) -> str | None:
        """Returns why the model may be old; None while it is not."""
        return self._present.stale()


def add_partition_routes(app: FastAPI, view: PartitionView) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/topics", response_model=Document[Topic])
    async def topics(limit: Limit = PAGE_DEFAULT, after: After = None) -> Response:
        page = view.list_topics(limit, after)
        return document("Topic", page.items, page.next, stale=view.stale())

    @app.get("/v1/topics/{topic}", response_model=Document[Topic])
    async def topic(topic: str) -> Response:
        return document("Topic", [view.describe_topic(topic)], stale=view.stale())

    @app.get("/v1/partitions", response_model=Document[Partition])
    async def partitions(
        topic: str | None = None,
        only: Filters = None,
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
        broker: int | None = None,
    ) -> Response:
        page = view.list_partitions(PartitionQuery(topic, frozenset(only or ()), limit, after, broker))
        return document("Partition", page.items, page.next, stale=view.stale())

    @app.get("/v1/topics/{topic}/partitions/{partition}", response_model=Document[Partition])
    async def partition(topic: str, partition: int) -> Response:
        return document("Partition", [view.describe_partition(topic, partition)], stale=view.stale())


def partition_item(cluster: Cluster, i: int, min_isr: int | None) -> Partition:
    """Builds the item of one partition."""
    row = cluster.rows[i]
    return Partition(
        topic=cluster.topics[row.topic].name,
        partition=row.partition,
        state=row.state.name,
        leader=row.leader if row.state is PartitionState.ONLINE else None,
        leader_epoch=row.leader_epoch,
        partition_epoch=row.version,
        controller_epoch=row.controller_epoch,
        replicas=list(row.assignment.replicas),
        isr=list(row.isr),
        adding=list(row.assignment.adding),
        removing=list(row.assignment.removing),
        offline_replicas=list(cluster.offline_replicas(i)),
        recovering=row.recovering,
        under_replicated=row.under_replicated,
        at_min_isr=None if min_isr is None else at(row, min_isr),
        under_min_isr=None if min_isr is None else under(row, min_isr),
        min_isr=min_isr,
        preferred=row.led_as_preferred,
        refused_by=list(cluster.refusals.refusing(i, row.assignment.replicas)),
    )


def topic_item(cluster: Cluster, topic: TopicRows, min_isr: int | None) -> Topic:
    """Builds the item of one topic; the replication factor is that of its first partition."""
    rows = [cluster.rows[i] for i in topic.rows]
    return Topic(
        name=topic.name,
        id=None if topic.topic_id is None else base64.urlsafe_b64encode(topic.topic_id).decode().rstrip("="),
        partitions=len(rows),
        replication_factor=len(rows[0].assignment.origin) if rows else 0,
        offline=sum(row.state is not PartitionState.ONLINE for row in rows),
        under_replicated=sum(row.under_replicated for row in rows),
        under_min_isr=None if min_isr is None else sum(under(row, min_isr) for row in rows),
        not_preferred=sum(not row.led_as_preferred for row in rows),
    )


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
