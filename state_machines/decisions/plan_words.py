"""Shortens a plan whose words have grown too long for its record: reasons can be lost, states of moves cannot."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from state_machines.decisions.plan_progress import PlannedMove, ReassignPlan

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
