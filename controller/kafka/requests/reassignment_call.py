"""Declares calls of admin clients about reassignments (KIP-455) as values, independent of the wire."""

from __future__ import annotations

from msgspec import Struct

from state_machines.decisions.reassignment import NotReassigned
from state_machines.model.types import Assignment, TopicPartition
from state_machines.procedures.record import Caller


class AlterReassignments(Struct, frozen=True):
    """AlterPartitionReassignments: the target of each partition; None cancels its reassignment.

    ``again``: an earlier attempt of the call may have cancelled it; then a missing reassignment is a success.
    ``principal``: of the client, for the log. ``caller``: of the call's record, None without one.
    """

    targets: dict[TopicPartition, tuple[int, ...] | None]
    again: bool = False
    principal: str = "an admin client"
    caller: Caller | None = None


class AlterReassignmentsReply(Struct, frozen=True):
    """Partitions of the call that are not reassigned, and why; all others are under way, or done already."""

    refused: dict[TopicPartition, NotReassigned]


class ListReassignments(Struct, frozen=True):
    """ListPartitionReassignments: of these partitions, or of all (None)."""

    partitions: tuple[TopicPartition, ...] | None = None


class ListReassignmentsReply(Struct, frozen=True):
    """Partitions that are being reassigned, with what is added and removed."""

    under_way: dict[TopicPartition, Assignment]
