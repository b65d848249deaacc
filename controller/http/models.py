"""Defines responses of the HTTP surface. JSON names are in camel case; every document has apiVersion, kind, items.

They are stable for scripts: fields are added, not renamed or removed, while ``apiVersion`` stays.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, model_validator
from pydantic.alias_generators import to_camel

from controller.process.texts import problem_in

API_VERSION: Final = "regent/v1"
T = TypeVar("T", bound="Item")


class Item(BaseModel):
    """Base of all response items."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class RequestItem(Item):
    """Base of all bodies of requests: no text in them has control characters."""

    @model_validator(mode="before")
    @classmethod
    def _check_texts(cls, data: object) -> object:
        if (problem := problem_in(data)) is not None:
            raise ValueError(problem)
        return data


class Document(Item, Generic[T]):
    """Items of one kind. ``next`` is the begin of the following page; absent on the last one."""

    api_version: Literal["regent/v1"] = API_VERSION
    kind: str
    items: list[SerializeAsAny[T]]
    next: str | None = None
    stale: str | None = Field(None, description="why the items may be old: ZooKeeper does not answer this daemon")


class ErrorBody(Item):
    """Cause of a failed request, and its remedy."""

    message: str
    remedy: str


class Status(Item):
    """Status of the daemon and the cluster. ``why`` is one sentence about the mode.

    Numbers of the cluster are absent where the daemon has no model of it, as on a standby.
    """

    mode: str
    why: str
    version: str
    controller_id: int
    controller_epoch: int | None = Field(
        None, description="of this daemon's term; without one the cluster's, as ZooKeeper last had it"
    )
    since: datetime | None = None
    lease_remaining_s: float = 0.0
    role_flag: Literal["regent", "brokers"] = "brokers"
    on_absence: Literal["brokers", "hold"] = "brokers"
    holder: int | None = Field(None, description="id in /controller")
    holder_kind: Literal["daemon", "broker", "nobody"] = "nobody"
    cluster_id: str | None = None
    ibp: str = ""
    zookeeper_connected: bool = False
    session_timeout_ms: int = 0
    admin_endpoint: str | None = Field(
        None,
        description="address at which clients of brokers find the controller: as an active daemon sends it to "
        "brokers, or on a standby as announced by the endpoint beside it",
    )
    admin_endpoint_trouble: str | None = Field(
        None, description="why the endpoint beside this daemon serves no clients, or would not after a restart"
    )
    health: list[str] | None = Field(None, description="what is wrong with the cluster, worst first; empty: nothing is")
    procedures: list[str] | None = Field(
        None, description="procedures that have not ended: age, progress, and what they wait for"
    )
    throttles: list[str] | None = Field(None, description="throttles in force: of procedures, and without an owner")
    unowned_throttle_settings: int | None = Field(
        None, description="throttle settings in ZooKeeper that no procedure takes back; absent: none"
    )
    brokers: int | None = None
    topics: int | None = None
    partitions: int | None = None
    offline_partitions: int | None = None
    under_replicated_partitions: int | None = None
    under_min_isr_partitions: int | None = Field(
        None, description="their producers with acks=all wait; absent until a broker has sent min.insync.replicas"
    )
    reassignments: int | None = Field(None, description="partitions that move to other replicas")
    cordoned_brokers: list[int] | None = Field(None, description="brokers that get no further replica; absent: none")
    drained_brokers: list[int] | None = Field(None, description="brokers that lead last; absent: none")
    remembered_replicas: int | None = Field(
        None, description="removed replicas that their brokers have still to stop (regent strays); absent: none"
    )
    paused: str | None = Field(None, description="why automatic moves stand still, and until when; absent: they go on")
    unacknowledged_partitions: int | None = Field(
        None, description="committed, but not acknowledged by every broker yet"
    )
    propagation_age_s_max: float | None = None
    event_queue_size: int | None = None
    shadow_compared: int | None = Field(None, description="decisions that a shadow has compared, over all processes")
    shadow_differences: int | None = None
    shadow_report: str | None = Field(None, description="file on the daemon's machine with all counts")
    warnings: list[str] = []


class Setting(Item):
    """A setting of brokers that Kafka's controller obeys, and the value that holds here."""

    key: str = Field(description="of the daemon's own settings, where it may be set")
    broker_setting: str
    value: str
    source: str = Field(description="set by us, adopted from brokers, or no broker has reported it yet")
    differs: str = Field("", description="brokers with another value, and the remedy")


class Daemon(Item):
    """A daemon in the queue for the role."""

    id: int
    host: str
    pid: int
    position: int = Field(description="0 holds the role or claims next")


class Malformed(Item):
    """A malformed znode, which is left alone."""

    path: str
    why: str


class Cluster(Item):
    """The cluster in the daemon's model."""

    cluster_id: str | None
    controller_id: int
    controller_epoch: int
    ibp: str
    on_absence: Literal["brokers", "hold"]
    role_flag: Literal["regent", "brokers"]
    daemons: list[Daemon] = []
    brokers: list[int] = []
    shutting_down: list[int] = []
    topics: int = 0
    partitions: int = 0
    malformed: list[Malformed] = []


class Listener(Item):
    """One endpoint of a broker."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


class Broker(Item):
    """A broker and its unacknowledged changes. A dead one hosts replicas, or a plan waits for it; it has no epoch.

    An unreachable one is registered, as its session lives, but accepts no connection.
    """

    id: int
    state: Literal["live", "unreachable", "shutting down", "dead"] = "live"
    epoch: int | None = None
    rack: str | None = None
    cordoned: bool = Field(False, description="regent places no further replica on it")
    drained: bool = Field(False, description="it leads only where no other broker can")
    ibp: str | None = None
    listeners: list[Listener] = []
    leads: int = Field(0, description="of a dead broker: partitions that it led last and that have no leader")
    hosts: int = Field(0, description="replicas that are assigned to it")
    queued: int = 0
    unacknowledged_partitions: int = 0
    propagation_age_s: float = Field(0.0, description="of the oldest change that it has not acknowledged; 0: none")
    refuses: int = Field(0, description="partitions whose replica it refuses, see regent explain")
    last_error: str | None = Field(None, description="why requests do not reach it now")
    dead_since: datetime | None = Field(
        None, description="when a dead broker left ZooKeeper; absent where this daemon did not see it go"
    )
    dead_before: datetime | None = Field(
        None, description="instead of deadSince: when the daemon's term began, and the broker was dead already"
    )
    awaited_by: list[int] = Field([], description="pids of running plans that add replicas on this dead broker")


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


class HistoryRow(Item):
    """One row of the journal about a partition, in a sentence."""

    at: str = Field(description="UTC")
    controller_epoch: int
    daemon: int
    kind: str
    told: str


class Explanation(Item):
    """State of a partition, its reasons, and the events that would change it, in ordinary sentences."""

    partition: Partition
    state_because: str
    leader_because: str
    isr_because: str
    would_change: list[str] = []
    differs: list[str] = Field([], description="what ZooKeeper has otherwise than the daemon's memory, as verify finds")
    waiting_for: list[int] = Field([], description="brokers that have not acknowledged the last change")
    history: list[HistoryRow] = Field([], description="from this daemon's journal, over all its terms, oldest first")


class Difference(Item):
    """A field of a partition that two places hold differently. ``broker`` is absent for ZooKeeper itself."""

    topic: str
    partition: int
    field: str
    expected: str = Field(description="in the daemon's memory")
    found: str
    broker: int | None = None


class Verification(Item):
    """ZooKeeper, the daemon's memory and every broker's metadata, compared."""

    memory: bool = Field(False, description="whether the memory was compared: only an active daemon has one")
    partitions: int
    brokers: list[int]
    unreachable: list[int] = []
    differences: list[Difference] = []
    differences_total: int = 0

    @property
    def clean(self) -> bool:
        """Returns whether everything was compared and nothing differs."""
        return not self.differences_total and not self.unreachable


class Check(Item):
    """One check of a preflight; only a refusal prevents a take-over."""

    name: str
    result: Literal["ok", "warning", "refused"]
    found: str
    remedy: str = ""


class Operation(Item):
    """A take-over or a hand-back. ``done`` and ``failed`` are final, ``refused`` means that it was not begun."""

    kind: Literal["takeover", "handback"]
    state: Literal["planned", "running", "done", "failed", "refused"]
    message: str
    remedy: str = ""
    steps: list[str] = Field([], description="steps done, or planned by a dry run")
    reason: str = ""
    started: datetime | None = None


class OperationRequest(RequestItem):
    """Request of an operator. ``reason`` is stored beside the role flag."""

    dry_run: bool = False
    reason: str = Field("", max_length=1_000)


class Health(Item):
    """Response of a probe. ``why`` is the reason where ``ok`` is false."""

    ok: bool
    mode: str
    why: str
