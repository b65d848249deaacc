"""Plants bugs in drains, in elections beside drained brokers, and in shutdowns that are undone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from typing import Any
from unittest import mock

from controller.kafka.partitions import controlled_shutdown, isr_changes
from controller.kafka.procedures import drain, reassign
from controller.kafka.term import failover
from state_machines.decisions.alter_partition import IsrRequest
from state_machines.machines import selectors
from state_machines.machines.draft import Draft
from state_machines.machines.partition import PartitionStateMachine, Unclean
from state_machines.machines.replica import ReplicaStateMachine
from state_machines.machines.selectors import Selector
from state_machines.procedures.outcome import Done
from state_machines.procedures.record import Record
from tests.kit.simulation.planting import put
from tests.simulation.kafka.planting import mutation


@mutation
def elect_drained_brokers_like_others(stack: ExitStack) -> None:
    """Does not spare drained brokers."""
    last = selectors.last

    def unsparing(select: Selector, outranked: Collection[int], _: Collection[int] = ()) -> Selector:
        return last(select, outranked)

    put(stack, selectors, "last", unsparing)


@mutation
def keep_marks_of_aborted_drains(stack: ExitStack) -> None:
    """Ends an aborted drain with its marks in place."""

    async def unmark(_env: Any, _record: Record) -> Done:
        return Done()

    mark, *others = drain.DRAIN.steps
    kind = drain.DRAIN._replace(steps=(mark._replace(undo=unmark), *others))
    stack.enter_context(mock.patch("controller.kafka.term.procedures.KINDS", (reassign.REASSIGN, kind)))


@mutation
def forget_marks_at_a_failover(stack: ExitStack) -> None:
    """Begins a term without the marks of drained brokers."""

    async def nothing(_: Any) -> None:
        """Reads no marks."""

    put(stack, failover, "cordon_change", nothing)


@mutation
def leave_followers_stopped(stack: ExitStack) -> None:
    """Undoes a shutdown without letting the stopped followers follow again."""

    def elects(draft: Draft, broker: int, unclean: Unclean) -> None:
        PartitionStateMachine(draft).elect_leaderless(sorted(draft.cluster.leaderless), unclean)

    put(stack, controlled_shutdown, "shutdown_undone", elects)


@mutation
def want_followers_for_ever(stack: ExitStack) -> None:
    """Only refuses the followers on a broker in its shutdown that leaders want in the ISR."""

    async def nothing(_: Any, _refused: Iterable[IsrRequest]) -> None:
        """Leaves the leader epoch as it is."""

    put(stack, isr_changes, "keep_out_of_isrs", nothing)


@mutation
def stop_followers_in_a_known_epoch(stack: ExitStack) -> None:
    """Keeps followers out without another leader epoch, so that nothing begins them again."""

    def stops(draft: Draft, broker: int, fetching: Mapping[int, int]) -> None:
        ReplicaStateMachine(draft).take_offline(broker, fetching, "a planted bug")

    put(stack, controlled_shutdown, "keep_out", stops)
