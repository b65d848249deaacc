"""Bounds what the record of a plan says: moves that were superseded, and by which callers; words too long for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from state_machines.decisions.plan_progress import ELSEWHERE, PlannedMove, ReassignPlan, Status, Superseded
from state_machines.model.types import TopicPartition

NOTED_MAX: Final = 500
"""Superseded moves of a plan that have a time, a caller, and the replicas that they have got."""
BY_BYTES_MAX: Final = 120
"""Bytes of a caller's words; more are cut."""


def newly_superseded(before: ReassignPlan, after: ReassignPlan) -> list[int]:
    """Returns the places of the moves that are superseded since ``before``."""
    pairs = enumerate(zip(before.moves, after.moves, strict=True))
    return [at for at, (old, new) in pairs if new.status is Status.SUPERSEDED and old.status is not new.status]


def noted(plan: ReassignPlan, found: Sequence[int], now_ms: int, callers: Mapping[TopicPartition, str]) -> ReassignPlan:
    """Returns the plan with its newly ``found`` superseded moves noted, as many as the bound allows.

    The others only say that the partition was reassigned.
    """
    room = max(0, NOTED_MAX - len(plan.superseded))
    moves = list(plan.moves)
    notes = [Superseded(at, now_ms, _cut(callers.get(_name(plan, at), ""))) for at in found[:room]]
    for at in found[room:]:
        if moves[at].why.startswith(ELSEWHERE):
            moves[at] = replace(moves[at], why=ELSEWHERE)
    return replace(plan, moves=tuple(moves), superseded=(*plan.superseded, *notes))


def _name(plan: ReassignPlan, at: int) -> TopicPartition:
    return TopicPartition(plan.moves[at].topic, plan.moves[at].partition)


def _cut(words: str) -> str:
    return words.encode()[:BY_BYTES_MAX].decode("utf-8", "ignore")


WORDS_KEPT_MAX: Final = 100
"""Moves of a shortened plan that keep their reasons, and superseded moves that keep their callers: the first ones."""


def shortened(plan: ReassignPlan) -> ReassignPlan:
    """Returns the plan without the words of all moves but the first ones.

    A plan that was shortened, and looked at again, is as short as before: writes of it come to an end.
    """
    left = WORDS_KEPT_MAX
    moves: list[PlannedMove] = []
    for move in plan.moves:
        keeps = not move.why or left > 0
        left -= bool(move.why)
        moves.append(move if keeps else replace(move, why=""))
    return replace(plan, moves=tuple(moves), superseded=plan.superseded[:WORDS_KEPT_MAX])
