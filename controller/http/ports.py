"""Declares the daemon's interface for the HTTP surface. The daemon implements it; tests have a double.

Everything runs on the daemon's event loop, so methods that are not ``async`` must be quick: they answer from memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol

from controller.http.deletions import Deletions
from controller.http.drains import Draining
from controller.http.elections import Electing
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
from controller.http.pauses import Pausing
from controller.http.procedures import Cordoning, Procedures
from controller.http.restart_models import RestartNext, SetOfBrokers
from controller.http.restarts import Restarting
from controller.http.role_history import RoleHistory
from controller.http.snapshots import Snapshots
from controller.http.strays import Strays
from controller.http.throttles import Throttling
from state_machines.decisions.hindrances import StopCause


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


class RestartQuery(NamedTuple):
    """A query of the next batch: ``since`` has the broker epochs at the start (empty: all brokers as they are).

    ``pid``: the rolling restart whose start counts; without it the one that runs, or the last one.
    """

    since: Mapping[int, int]
    batch_max: int
    accepted: frozenset[StopCause]
    pid: int | None = None


class DaemonView(Protocol):
    """The operators' view of a daemon. Any method may raise :class:`ViewError`."""

    def liveness(self) -> Health:
        """Reports that the loop turns, in any mode. Works from the first moment."""

    def readiness(self) -> Health:
        """Reports whether it is active, a warm standby or a shadow; else the reason. Works from the first moment."""

    def stale(self) -> str | None:
        """Returns why responses from memory may be old; None while they are not."""

    def status(self) -> Status:
        """Returns the status, in every mode."""

    def list_settings(self) -> list[Setting]:
        """Lists the brokers' settings that hold here; only while the daemon holds the role."""

    def describe_cluster(self) -> Cluster:
        """Describes the cluster, and the daemons that queue for its role."""

    def list_brokers(self) -> list[Broker]:
        """Lists brokers by id: the live ones, and the dead ones with assigned replicas."""

    def describe_broker(self, broker: int) -> Broker:
        """Describes one broker."""

    def list_topics(self, limit: int, after: str | None) -> TopicPage:
        """Lists topics by name, from the one after ``after``."""

    def describe_topic(self, topic: str) -> Topic:
        """Describes one topic."""

    def list_partitions(self, query: PartitionQuery) -> PartitionPage:
        """Lists partitions that match."""

    def describe_partition(self, topic: str, partition: int) -> Partition:
        """Describes one partition."""

    async def explain(self, topic: str, partition: int) -> Explanation:
        """Explains the state, leader and ISR of a partition."""

    async def verify(self) -> Verification:
        """Compares ZooKeeper, memory and every broker. The caller runs one at a time."""

    async def can_stop(self, brokers: frozenset[int], accepted: frozenset[StopCause]) -> SetOfBrokers:
        """Judges whether brokers may stop together, apart from accepted causes."""

    async def can_remove(self, brokers: frozenset[int]) -> SetOfBrokers:
        """Judges whether nothing is left on brokers."""

    async def restart_next(self, query: RestartQuery) -> RestartNext:
        """Decides which brokers a rolling restart takes next."""

    async def takeover(self, request: OperationRequest, principal: str) -> Operation:
        """Begins a take-over (or plans it, in a dry run) and answers at once."""

    async def handback(self, request: OperationRequest, principal: str) -> Operation:
        """Begins a hand-back to the brokers (or plans it, in a dry run) and answers at once."""

    @property
    def procedures(self) -> Procedures:
        """Returns the view of the procedures."""

    @property
    def cordons(self) -> Cordoning:
        """Returns the view of cordoned brokers."""

    @property
    def drains(self) -> Draining:
        """Returns the view that drains brokers."""

    @property
    def throttles(self) -> Throttling:
        """Returns the view of throttles."""

    @property
    def elections(self) -> Electing:
        """Returns the view of elections of many partitions."""

    @property
    def restarts(self) -> Restarting:
        """Returns the view that begins rolling restarts."""

    @property
    def pauses(self) -> Pausing:
        """Returns the view of the pause of automatic moves."""

    @property
    def role_history(self) -> RoleHistory:
        """Returns the view of take-overs and hand-backs."""

    @property
    def snapshots(self) -> Snapshots:
        """Returns the view of snapshots."""

    @property
    def strays(self) -> Strays:
        """Returns the view of logs that no assignment names."""

    @property
    def deletions(self) -> Deletions:
        """Returns the view of topics that are being deleted."""

    def operation(self) -> Operation | None:
        """Returns the running take-over or hand-back, or the last one of this process."""
