"""Finds partitions that a new plan would move, and that a plan of another request moves already, now or later."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from controller.process.wording import named
from state_machines.decisions.plan_progress import ENDED, ReassignPlan
from state_machines.model.types import TopicPartition
from state_machines.procedures.record import Record
from state_machines.procedures.states import State


class Overlap(NamedTuple):
    """Why a plan is refused, and what would make it succeed."""

    why: str
    remedy: str


def overlap(plan: ReassignPlan, others: Iterable[tuple[Record, ReassignPlan]]) -> Overlap | None:
    """Returns the first of the live plans that moves some of the partitions; None where none does."""
    wanted = {(move.topic, move.partition) for move in plan.moves}
    for record, other in others:
        left = [move for move in other.moves if move.status not in ENDED]
        both = [TopicPartition(one.topic, one.partition) for one in left if (one.topic, one.partition) in wanted]
        if both:
            count = f"{len(both)} of these {len(plan.moves)} partitions"
            ends = "" if record.state is State.FAILED else f", or end it with 'regent procedures cancel {record.pid}'"
            return Overlap(
                f"plan {record.pid} moves {count}: {named(both)}",
                f"wait for its end, 'regent procedures wait {record.pid}'{ends}; then make a new plan",
            )
    return None
