"""Finds the shortest story of a failure: takes actions out while the same invariant is still violated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from tests.simulation.kafka.plan import Action, Plan

TRIES_MAX: Final = 300
"""Runs that shrinking may take."""

Fails = Callable[[Plan], bool]


class Shrinker:
    """Shrinks the script, then the cluster (delta debugging). ``fails``: whether a plan still shows the failure."""

    def __init__(self, fails: Fails, tries_max: int = TRIES_MAX) -> None:
        self._fails = fails
        self.tries_left = tries_max

    def shrink(self, plan: Plan) -> Plan:
        """Returns a plan that still fails, as short as the bound allows."""
        plan = self._actions(plan)
        plan = self._cluster(plan)
        return self._actions(plan)

    def _still(self, plan: Plan) -> bool:
        if self.tries_left <= 0:
            return False
        self.tries_left -= 1
        return self._fails(plan)

    def _actions(self, plan: Plan) -> Plan:
        """Takes parts out: halves first, then ever smaller ones."""
        size = (len(plan.actions) + 1) // 2
        while size and self.tries_left:
            shorter = self._without(plan, size)
            if shorter is None:
                size //= 2
            else:
                plan = shorter
                size = min(size, (len(plan.actions) + 1) // 2)
        return plan

    def _without(self, plan: Plan, size: int) -> Plan | None:
        """Returns the plan without one part of ``size`` actions; the last part is tried first."""
        for start in range(max(0, len(plan.actions) - size), -size, -size):
            kept: Sequence[Action] = [*plan.actions[: max(0, start)], *plan.actions[max(0, start) + size :]]
            if len(kept) < len(plan.actions) and self._still(candidate := plan.with_actions(kept)):
                return candidate
        return None

    def _cluster(self, plan: Plan) -> Plan:
        """Returns a simpler cluster, where that still fails."""
        simpler = [
            {"racks": ()},
            {"servers": 1},
            {"dead": ()},
            {"odd": ()},
            {"limits": None},
            {"daemons": 1},
            {"daemons": 2},
        ]
        for changes in simpler:
            candidate = replace(plan, **changes)  # type: ignore[arg-type]
            if candidate != plan and _fits(candidate) and self._still(candidate):
                plan = candidate
        return plan


def _fits(plan: Plan) -> bool:
    """Returns whether the script names only daemons of the cluster."""
    named = {
        int(str(action.words[0]).removeprefix("d"))
        for action in plan.actions
        if action.words and ("-daemon" in action.verb or str(action.words[0]).startswith("d"))
    }
    return all(number < plan.daemons for number in named)
