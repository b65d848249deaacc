"""Calls of admin clients about reassignments (KIP-455), as values: how they come over a wire is not known here."""

from __future__ import annotations

from msgspec import Struct

from controller.calls import ask
from controller.event_queue import EventQueue
from state_machines.reassignment import NotReassigned
from state_machines.types import Assignment, TopicPartition


class AlterReassignments(Struct, frozen=True):
    """AlterPartitionReassignments: the target of each partition; None cancels what is under way."""

    targets: dict[TopicPartition, tuple[int, ...] | None]


class AlterReassignmentsReply(Struct, frozen=True):
    """Partitions of the call that are not reassigned, and why; all others are under way, or done already."""

    refused: dict[TopicPartition, NotReassigned]


class ListReassignments(Struct, frozen=True):
    """ListPartitionReassignments: of these partitions, or of all (None)."""

    partitions: tuple[TopicPartition, ...] | None = None


class ListReassignmentsReply(Struct, frozen=True):
    """Partitions that are being reassigned, with what is added and removed."""

    under_way: dict[TopicPartition, Assignment]


class ReassignmentCalls:
    """The calls of one term; each raises ``NotController`` where the term ends first, or too many events wait."""

    def __init__(self, queue: EventQueue) -> None:
        self._queue = queue

    async def alter(self, call: AlterReassignments) -> AlterReassignmentsReply:
        """Begins, overrides and cancels; answered once that is durable and brokers are being told."""
        reply: AlterReassignmentsReply = await ask(self._queue, "alter_reassignments", call)
        return reply

    async def list(self, call: ListReassignments) -> ListReassignmentsReply:
        """What is under way."""
        reply: ListReassignmentsReply = await ask(self._queue, "list_reassignments", call)
        return reply
