"""Declares the values behind the metrics of a cluster's controller: counters that grow, and gauges of one moment."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal, Protocol

from controller.metrics import Timer

QUEUE_TIME_KEPT_S: Final = 300.0
"""Time without events after which no recent queue time is shown, as by Kafka (KAFKA-10189): an alert must not stick."""


@dataclass
class Counters:
    """Counts that only grow, over all terms of the process."""

    commits: int = 0
    writes: int = 0
    conflicts: int = 0
    unknown_outcomes: int = 0
    unclean_elections: int = 0
    interim_terms: int = 0
    terms: int = 0
    standstills: int = 0
    """Times that the lease of a term ran out."""
    resignations: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    events: defaultdict[str, Timer] = field(default_factory=lambda: defaultdict(Timer))
    queue_time: Timer = field(default_factory=lambda: Timer(kept_s=QUEUE_TIME_KEPT_S))
    heartbeats: Timer = field(default_factory=Timer)
    commit_time: Timer = field(default_factory=Timer)
    propagation: Timer = field(default_factory=Timer)
    broker_requests: defaultdict[int, Timer] = field(default_factory=lambda: defaultdict(Timer))
    malformed: dict[str, str] = field(default_factory=dict)
    open_znodes: str = ""
    repaired_assignments: int = 0
    recorded_calls: int = 0
    unrecorded_calls: int = 0
    fenced: int = 0
    shadow_compared: int = 0
    shadow_differences: int = 0
    journal_rows: int = 0
    journal_rows_lost: int = 0
    journal_bytes: int = 0
    journal_failing: str = ""
    journal_topic_rows: int = 0
    journal_topic_rows_lost: int = 0
    journal_topic_bytes_waiting: int = 0
    journal_topic_failing: str = ""
    snapshots: int = 0
    snapshot_failures: int = 0
    snapshot_s: float | None = None
    """When the last snapshot was complete, on the monotonic clock; None: this process has taken none."""
    lowered_ibp_brokers: set[int] = field(default_factory=set)


HolderKind = Literal["daemon", "broker", "nobody"]
HOLDERS: Final[tuple[HolderKind, ...]] = ("daemon", "broker", "nobody")


class ShownMode(StrEnum):
    """The daemon's mode in metrics; exactly one holds."""

    STARTING = "starting"
    STANDBY = "standby"
    BLOCKED = "blocked"
    SHADOW = "shadow"
    ACTIVE = "active"
    SUSPENDED = "suspended"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class BrokerGauges:
    """Propagation to one live broker. ``age_s``: age of its oldest unacknowledged change; 0 without any."""

    queued: int = 0
    age_s: float = 0.0
    unacknowledged_partitions: int = 0
    refused_partitions: int = 0


@dataclass(frozen=True, slots=True)
class Gauges:
    """The state at one moment. Every field has a value before anything is known, so that a scrape always works.

    From ``controller_state`` on, the numbers are those of the model; Kafka's names show them only while active.
    """

    mode: ShownMode = ShownMode.STARTING
    controller_epoch: int = 0
    lease_remaining_s: float = 0.0
    lease_remaining_part: float = 0.0
    heartbeat_age_s: float = 0.0
    standstill_s: float = 0.0
    """Time since the lease of a term ran out that does nothing, and has not ended."""
    holder: HolderKind = "nobody"
    role_flag: Literal["regent", "brokers"] = "brokers"
    zookeeper_connected: bool = False
    session_timeout_s: float = 0.0
    event_queue_size: int = 0
    ibp_mismatch_brokers: int = 0
    outranking_brokers: int = 0
    malformed_znodes: int = 0
    endpoint_shown: bool = False
    brokers: Mapping[int, BrokerGauges] = field(default_factory=dict)
    controller_state: int = 0
    offline_partitions: int = 0
    under_replicated_partitions: int = 0
    under_min_isr_partitions: int = 0
    preferred_replica_imbalance: int = 0
    reassigning_partitions: int = 0
    drained_brokers: int = 0
    remembered_replicas: int = 0
    unstopped_replicas: int = 0
    paused: bool = False
    procedures: int = 0
    live_procedures: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Those of a kind in a state."""
    idle_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """The longest time without progress by kind and cause."""
    copied_bytes: int = 0
    plan_bytes: int = 0
    throttles_bytes_per_s: Mapping[int, int] = field(default_factory=dict)
    """Throttles in force by broker."""
    dead_brokers: Mapping[int, int] = field(default_factory=dict)
    """Replicas of dead brokers that matter."""
    paused_plans: int = 0
    procedures_stuck: int = 0
    procedures_unusable: int = 0
    procedures_parked: int = 0
    procedures_stand_still: bool = False
    topics: int = 0
    partitions: int = 0
    topics_to_delete: int = 0
    replicas_to_delete: int = 0
    topics_ineligible_to_delete: int = 0
    replicas_ineligible_to_delete: int = 0
    active_brokers: int = 0


class MetricsView(Protocol):
    """The daemon's side of a scrape. It runs on the event loop: it may scan the rows once, never wait."""

    def gauges(self) -> Gauges:
        """Returns the present values."""
