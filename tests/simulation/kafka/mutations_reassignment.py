"""Plants bugs in reassignments."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from unittest import mock

from brokers.outbound.channels import Channels
from controller.kafka.partitions import isr_changes
from controller.kafka.path.controller import Controller
from controller.kafka.reassignments import reassignment, reassignment_requests
from state_machines.model.decision import Change, ReplicaMove
from tests.kit.simulation.planting import put
from tests.simulation.kafka.planting import mutation


@mutation
def never_look_again(stack: ExitStack) -> None:
    """Completes no reassignment at changes of ISRs."""
    for handler in (isr_changes, reassignment):
        stack.enter_context(mock.patch.object(handler, "isrs_changed"))
    put(stack, Controller, "_wake_reassignments", lambda self, changes: None)


@mutation
def complete_before_in_sync(stack: ExitStack) -> None:
    """Takes one replica of the target in the ISR for all of them."""
    stack.enter_context(
        mock.patch(
            "state_machines.decisions.reassignment._caught_up",
            lambda isr, written: not set(written.target).isdisjoint(isr),
        )
    )


@mutation
def finish_before_stopped(stack: ExitStack) -> None:
    """Writes the target alone into the topic znode before brokers were sent StopReplica."""

    async def stopped(self: Channels, _rows: Collection[int], _timeout_s: float) -> bool:
        return True

    put(stack, Channels, "stopped", stopped)


@mutation
def leave_removed_replicas(stack: ExitStack) -> None:
    """Sends no StopReplica for replicas that a reassignment removes."""
    propagate = Channels.propagate

    def propagate_without_deletions(self: Channels, changes: Sequence[Change], moves: Sequence[ReplicaMove]) -> None:
        propagate(self, changes, [move for move in moves if not move.delete])

    put(stack, Channels, "propagate", propagate_without_deletions)


@mutation
def leave_the_znode(stack: ExitStack) -> None:
    """Leaves completed reassignments in ``/admin/reassign_partitions``."""

    async def shrink(c: Controller) -> None: ...

    put(stack, reassignment_requests, "shrink_request", shrink)
