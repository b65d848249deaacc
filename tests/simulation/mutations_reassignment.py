"""Bugs in reassigning."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from unittest import mock

from brokers.outbound.channels import Channels
from controller.engine.controller import Controller
from controller.handlers import reassignment
from state_machines.model.decision import Change, ReplicaMove
from tests.simulation.planting import mutation, put


@mutation
def never_look_again(stack: ExitStack) -> None:
    """Changes of ISRs complete no reassignment."""
    for handler in ("alter_partition", "isr_notification", "reassignment"):
        stack.enter_context(mock.patch(f"controller.handlers.{handler}.isrs_changed"))
    put(stack, Controller, "_wake_reassignments", lambda self, changes: None)


@mutation
def complete_before_in_sync(stack: ExitStack) -> None:
    """One replica of the target in the ISR is taken for all of them."""
    stack.enter_context(
        mock.patch(
            "state_machines.decisions.reassignment._caught_up",
            lambda isr, written: not set(written.target).isdisjoint(isr),
        )
    )


@mutation
def finish_before_stopped(stack: ExitStack) -> None:
    """The topic znode names the target alone while brokers have still to be told to stop."""

    async def stopped(self: Channels, _rows: Collection[int], _timeout_s: float) -> bool:
        return True

    put(stack, Channels, "stopped", stopped)


@mutation
def leave_removed_replicas(stack: ExitStack) -> None:
    """Replicas that a reassignment removes are not told to go."""
    propagate = Channels.propagate

    def told(self: Channels, changes: Sequence[Change], moves: Sequence[ReplicaMove]) -> None:
        propagate(self, changes, [move for move in moves if not move.delete])

    put(stack, Channels, "propagate", told)


@mutation
def leave_the_znode(stack: ExitStack) -> None:
    """``/admin/reassign_partitions`` keeps what is done."""

    async def shrink(c: Controller) -> None: ...

    put(stack, reassignment, "shrink_request", shrink)
