"""What the HTTP surface needs of the daemon. The daemon implements it; tests have a double.

Everything runs on the daemon's event loop, so what is not ``async`` must be quick: it answers from memory.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, NamedTuple, Protocol

from controller.http.models import (
    Broker,
    Cluster,
    Explanation,
    Health,
    Operation,
    OperationRequest,
    Partition,
    Setting,
    Status,
    Topic,
    Verification,
)


class ViewError(Exception):
    """A request that cannot be answered. ``remedy`` says what would make it succeed."""

    status: ClassVar[int] = 500

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class NotFound(ViewError):
    """No such broker, topic or partition."""

    status = 404


class Refused(ViewError):
    """Understood, and not done: a safety check stands in the way."""

    status = 409


class NotActive(ViewError):
    """There is no model to answer from: the daemon does not hold the role."""

    status = 503


class Only(StrEnum):
    """Filters of partitions; several together mean any of them."""

    OFFLINE = "offline"
    UNDER_REPLICATED = "under-replicated"
    AT_MIN_ISR = "at-min-isr"
    UNDER_MIN_ISR = "under-min-isr"
    NOT_PREFERRED = "not-preferred"


class TopicPage(NamedTuple):
    """Some topics, and where the next page begins (None: this was the last)."""

    items: list[Topic]
    next: str | None


class PartitionPage(NamedTuple):
    """Some partitions, and where the next page begins (None: this was the last)."""

    items: list[Partition]
    next: str | None


class PartitionQuery(NamedTuple):
    """Which partitions: of one topic or of all, all or only those that a filter names, at most ``limit`` a page.

    ``broker``: only those with a replica on that broker.

    ``after`` is the ``next`` of the page before. A page may be short, or empty, while ``next`` is set: one call should
    not scan more rows than the loop can spare.
    """

    topic: str | None
    only: frozenset[Only]
    limit: int
    after: str | None
    broker: int | None = None


class DaemonView(Protocol):
    """The daemon as its operators see it. Any method may raise :class:`ViewError`."""

    def liveness(self) -> Health:
        """Whether the process is worth keeping: its loop turns, in whatever mode. Works from the first moment."""

    def readiness(self) -> Health:
        """Whether it does its job: active, a warm standby, or a shadow; otherwise why not. Works at once, too."""

    def stale(self) -> str | None:
        """Why what is answered from memory may be old; None while it is not."""

    def status(self) -> Status:
        """Works in every mode."""

    def list_settings(self) -> list[Setting]:
        """Settings of brokers that hold here; only while it holds the role."""

    def describe_cluster(self) -> Cluster:
        """The cluster, and the daemons that queue for its role."""

    def list_brokers(self) -> list[Broker]:
        """Brokers by id: the live ones, and the dead ones that replicas are assigned to."""

    def describe_broker(self, broker: int) -> Broker:
        """One of them."""

    def list_topics(self, limit: int, after: str | None) -> TopicPage:
        """Topics by name, from the one after ``after``."""

    def describe_topic(self, topic: str) -> Topic:
        """One of them."""

    def list_partitions(self, query: PartitionQuery) -> PartitionPage:
        """Partitions that match."""

    def describe_partition(self, topic: str, partition: int) -> Partition:
        """One of them."""

    async def explain(self, topic: str, partition: int) -> Explanation:
        """Why it is as it is."""

    async def verify(self) -> Verification:
        """Compares ZooKeeper, memory and every broker. The caller asks for one at a time."""

    async def takeover(self, request: OperationRequest) -> Operation:
        """Begins to take the role (or plans to, with a dry run) and answers at once."""

    async def handback(self, request: OperationRequest) -> Operation:
        """Begins to give the role back to the brokers (or plans to) and answers at once."""

    def operation(self) -> Operation | None:
        """The take-over or hand-back that runs, or the last one of this process."""
