"""Plants bugs in procedures and reassign plans."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import ExitStack
from typing import Any
from unittest import mock

from msgspec.structs import replace

from controller.kafka.procedures import drain, plan_throttles, reassign, throttle_settings
from controller.procedures.requests import Results
from controller.procedures.waiting import Waiting
from state_machines.admin_rules.throttles import Throttle, restore
from state_machines.decisions import plan_progress
from state_machines.decisions.plan_progress import PlannedMove, ReassignPlan, Status
from state_machines.procedures.outcome import Done
from state_machines.procedures.record import Record
from tests.kit.simulation.planting import put
from tests.simulation.kafka.planting import mutation


@mutation
def leave_throttles(stack: ExitStack) -> None:
    """Forgets the throttles of a plan instead of lifting them."""

    async def lift(_: Any, plan: ReassignPlan) -> ReassignPlan:
        return replace(plan, throttles=(), rate_in_force=0)

    put(stack, reassign, "lift_throttles", lift)


@mutation
def leave_throttles_of_cancelled_plans(stack: ExitStack) -> None:
    """Lifts throttles of plans that end well, and forgets those of plans that are taken back."""
    lift = plan_throttles.lift_throttles

    async def lift_some(env: Any, plan: ReassignPlan) -> Any:
        return replace(plan, throttles=(), rate_in_force=0) if plan.reverting else await lift(env, plan)

    put(stack, reassign, "lift_throttles", lift_some)


@mutation
def lose_former_rates(stack: ExitStack) -> None:
    """Removes the settings of a throttle at its end, as Kafka's tool does, whatever stood there before."""

    def remove(those: Iterable[Throttle], found: Any) -> Any:
        return restore([replace(one, before=None) for one in those], found)

    put(stack, throttle_settings, "restore", remove)


@mutation
def overwrite_foreign_rates(stack: ExitStack) -> None:
    """Gives settings their former values although another client changed them meanwhile."""

    def restore_all(those: Iterable[Throttle], found: Any) -> Any:
        present = [(one, found.get(one.entity, {}).get(one.setting)) for one in those]
        return restore([replace(one, ours=(*one.ours, value)) for one, value in present if value is not None], found)

    put(stack, throttle_settings, "restore", restore_all)


@mutation
def forget_nonces(stack: ExitStack) -> None:
    """Does not find the procedure of a nonce after a failover."""
    begun = Results.begun

    def begun_here(self: Results, record: Record) -> None:
        if not record.done and not record.attempts and record.submitted_ms == record.updated_ms:
            begun(self, record)

    put(stack, Results, "begun", begun_here)


@mutation
def take_nothing_back(stack: ExitStack) -> None:
    """Ends an aborted plan as it is."""

    async def take_back(_env: Any, _record: Record) -> Done:
        return Done()

    [step] = reassign.REASSIGN.steps
    kind = reassign.REASSIGN._replace(steps=(step._replace(undo=take_back),))
    stack.enter_context(mock.patch("controller.kafka.term.procedures.KINDS", (kind, drain.DRAIN)))


@mutation
def begin_superseded_moves_again(stack: ExitStack) -> None:
    """Moves partitions again that another client cancelled."""
    looked_at = plan_progress._Window.looked_at

    def again(self: Any, move: PlannedMove) -> PlannedMove:
        found = looked_at(self, move)
        return replace(found, status=Status.QUEUED) if found.why == plan_progress.CANCELLED_BY else found

    def advance(
        plan: ReassignPlan, cluster: Any, daemons: Collection[int], _: Any, **_more: Any
    ) -> plan_progress.Progress:
        window = plan_progress._Window(plan, cluster, daemons)
        seen = plan_progress.ENDED - {Status.SUPERSEDED}
        moves = tuple(
            move if move.status in seen or move.why == plan_progress.GONE else window.looked_at(move)
            for move in plan.moves
        )
        return plan_progress.Progress(replace(plan, moves=moves), window.begins)

    put(stack, plan_progress._Window, "looked_at", again)
    put(stack, reassign, "advance", advance)


@mutation
def lose_wakes(stack: ExitStack) -> None:
    """Lets a procedure wait for ever whose deadline has come."""
    put(stack, Waiting, "due", lambda self: [])


@mutation
def count_a_begun_move_as_done(stack: ExitStack) -> None:
    """Ends a plan while its moves are still under way."""
    put(stack, plan_progress._Window, "_begun", _done)


def _done(_: Any, move: PlannedMove, *_found: Any) -> PlannedMove:
    return replace(move, status=Status.DONE)
