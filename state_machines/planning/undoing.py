"""Draws the way back of a plan that has ended: partitions get the replicas that they had before."""

from __future__ import annotations

from state_machines.planning.drafting import PlanDraft
from state_machines.planning.goals import TargetReplicas, Undo, listed
from state_machines.planning.targets import faults


def draw_undo(draft: PlanDraft, goal: Undo) -> None:
    """Draws moves back for partitions that are where the plan put them; those that are back already need none.

    What another client has moved since stays, and is refused.
    """
    if not goal.moves:
        draft.refuse("moves", f"{goal.source} moved nothing: there is nothing to take back")
    for move in sorted(goal.moves, key=lambda one: (one.topic, one.partition)):
        row = draft.view.find(move.topic, move.partition)
        if row is None:
            draft.refuse(move.name, "it does not exist any more: nothing of it can be taken back")
            continue
        assignment = draft.view.assignments[row]
        current = assignment.replicas
        if (current == move.origin and not assignment.moving) or not draft.may_move(move.topic, row):
            continue
        if set(current) != set(move.target):
            why = f"its replicas are [{listed(current)}], and the plan gave it [{listed(move.target)}]"
            draft.refuse(move.name, f"{why}: it was moved since; --target gives it the replicas that you want")
            continue
        wrong = list(faults(draft.view, TargetReplicas(move.topic, move.partition, move.origin), current))
        for why in wrong:
            draft.refuse(move.name, why)
        if not wrong:
            draft.move(move.topic, row, move.origin)
