"""Declares a daemon's mode and the values of its metrics, at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal, Protocol

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
