"""Bugs in reassigning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from unittest import mock

from brokers.channels import Channels
from controller.controller import Controller
from controller.handlers import reassignment
from state_machines.assigned import Assigned
from state_machines.cluster import Cluster
from state_machines.decision import Change, ReplicaMove
from tests.simulation.planting import mutation, put


@mutation
def begin_reassignments_anew(stack: ExitStack) -> None:
    """A controller that takes over does not go on with what the one before it began."""

    async def resume(c: Controller) -> None:
        await reassignment.reassign_partitions(c)

    put(stack, reassignment, "resume_reassignments", resume)


@mutation
def never_look_again(stack: ExitStack) -> None:
    """Changes of ISRs complete no reassignment."""
    for handler in ("alter_partition", "isr_notification", "reassignment"):
        stack.enter_context(mock.patch(f"controller.handlers.{handler}.isrs_changed"))


@mutation
def leave_removed_replicas(stack: ExitStack) -> None:
    """Replicas that a reassignment removes are not told to go."""
    tell = Channels.tell

    def told(self: Channels, changes: Sequence[Change], moves: Sequence[ReplicaMove]) -> None:
        tell(self, changes, [move for move in moves if not move.delete])

    put(stack, Channels, "tell", told)


@mutation
def leave_the_znode(stack: ExitStack) -> None:
    """``/admin/reassign_partitions`` keeps what is done."""

    async def shrink(c: Controller) -> None: ...

    put(stack, reassignment, "shrink_request", shrink)


@mutation
def forget_what_a_cancel_dropped(stack: ExitStack) -> None:
    """Replicas in an ISR that a cancelled reassignment names no more are left there at a change of the controller."""

    def strays(self: Cluster, rows: Iterable[int] | None = None) -> list[int]:
        return []

    put(stack, Assigned, "observe_strays", strays)
