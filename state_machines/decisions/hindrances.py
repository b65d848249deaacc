"""Names the causes for which a broker must not stop, or must not be removed, and counts the partitions behind each."""

from __future__ import annotations

from bisect import insort
from enum import StrEnum
from typing import Final

from msgspec import Struct

from state_machines.model.cluster import Cluster
from state_machines.model.types import TopicPartition

EXAMPLES_MAX: Final = 5
"""Partitions that are named for each cause; all are counted."""
WAITED_FOR_MAX: Final = 20
"""Brokers that are named for each cause as those to wait for."""
ROWS_PER_TURN: Final = 5_000
"""Rows that are judged between two turns of the caller's event loop: some milliseconds."""


class StopCause(StrEnum):
    """Causes for which brokers must not stop. An operator may accept any of them."""

    OFFLINE = "offline"
    REASSIGNING = "reassigning"
    UNDER_REPLICATED = "under-replicated"
    SINGLE_REPLICA = "single-replica"
    NO_LEADER = "no-leader"
    BELOW_MIN_ISR = "below-min-isr"
    MIN_ISR_UNKNOWN = "min-isr-unknown"
    UNKNOWN_BROKER = "unknown-broker"


class RemoveCause(StrEnum):
    """Causes for which brokers must not be removed."""

    ASSIGNED = "assigned"
    TARGET = "reassignment-target"
    CONTROLLER = "controller"


Cause = StopCause | RemoveCause

MEANINGS: Final[dict[Cause, str]] = {
    StopCause.OFFLINE: "these partitions have no leader already",
    StopCause.REASSIGNING: "these partitions are being reassigned",
    StopCause.UNDER_REPLICATED: "replicas of these partitions on other brokers are not in sync",
    StopCause.SINGLE_REPLICA: "these partitions have no other replica, and would be offline",
    StopCause.NO_LEADER: "no other in-sync replica of these partitions could lead",
    StopCause.BELOW_MIN_ISR: "producers with acks=all to these partitions would be refused (min.insync.replicas)",
    StopCause.MIN_ISR_UNKNOWN: "no broker has sent its default of min.insync.replicas yet",
    StopCause.UNKNOWN_BROKER: "these brokers are not registered, and host no replica",
    RemoveCause.ASSIGNED: "replicas of these partitions are assigned to the brokers",
    RemoveCause.TARGET: "reassignments add replicas of these partitions on the brokers",
    RemoveCause.CONTROLLER: "one of the brokers is the cluster's controller",
}
REMEDIES: Final[dict[Cause, str]] = {
    StopCause.OFFLINE: "start the brokers of their ISR, and wait until each has a leader",
    StopCause.REASSIGNING: "wait for the end of the reassignment, or cancel it",
    StopCause.UNDER_REPLICATED: "wait until their replicas are in sync; start brokers that are down",
    StopCause.SINGLE_REPLICA: "add a replica, or accept that they are offline while the broker is down: "
    "--accept single-replica",
    StopCause.NO_LEADER: "stop fewer brokers at a time, or wait until a replica on another broker is in sync",
    StopCause.BELOW_MIN_ISR: "stop fewer brokers at a time, wait until more replicas are in sync, or lower "
    "min.insync.replicas where it equals the number of replicas",
    StopCause.MIN_ISR_UNKNOWN: "try again in a few seconds",
    StopCause.UNKNOWN_BROKER: "correct the ids: 'regent list brokers' has them",
    RemoveCause.ASSIGNED: "drain the brokers: reassign these partitions to others, and wait for the end",
    RemoveCause.TARGET: "cancel these reassignments, or choose other targets",
    RemoveCause.CONTROLLER: "give the role to another controller: see 'regent takeover'",
}


class Hindrance(Struct, frozen=True):
    """A cause with the number of partitions behind it (of brokers, where the cause concerns no partition).

    ``examples`` are the first partitions, at most :data:`EXAMPLES_MAX`; ``waits_for`` are brokers whose replicas have
    to come into sync, at most :data:`WAITED_FOR_MAX`.
    """

    cause: Cause
    count: int
    examples: tuple[TopicPartition, ...] = ()
    waits_for: tuple[int, ...] = ()


class Judgement(Struct, frozen=True):
    """Result for a set of brokers: allowed where nothing hinders it.

    ``partitions``: how many were judged. ``unregistered`` host replicas and are down; ``shutting_down`` have requested
    their controlled shutdown; ``unknown`` are neither registered nor host a replica.
    """

    brokers: tuple[int, ...]
    partitions: int
    hindrances: tuple[Hindrance, ...]
    unregistered: tuple[int, ...] = ()
    shutting_down: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()

    @property
    def allowed(self) -> bool:
        """Checks whether nothing hinders it."""
        return not self.hindrances


class Tally:
    """Counts partitions by cause, with the first examples; its size is independent of the number of partitions."""

    def __init__(self) -> None:
        self._counts: dict[Cause, int] = {}
        self._examples: dict[Cause, list[int]] = {}
        self._waits_for: dict[Cause, set[int]] = {}

    @property
    def total(self) -> int:
        """Returns the number of entries; a partition has one for each of its causes."""
        return sum(self._counts.values())

    def add(self, cause: Cause, i: int, waits_for: tuple[int, ...] = ()) -> None:
        """Counts a row under a cause."""
        self._counts[cause] = self._counts.get(cause, 0) + 1
        self._waits_for.setdefault(cause, set()).update(waits_for)
        examples = self._examples.setdefault(cause, [])
        insort(examples, i)
        del examples[EXAMPLES_MAX:]

    def hindrances(self, cluster: Cluster) -> tuple[Hindrance, ...]:
        """Returns what was counted, in the order in which the causes are declared."""
        return tuple(
            Hindrance(
                cause,
                self._counts[cause],
                tuple(cluster.name(i) for i in self._examples[cause]),
                tuple(sorted(self._waits_for[cause])[:WAITED_FOR_MAX]),
            )
            for cause in (*StopCause, *RemoveCause)
            if cause in self._counts
        )
