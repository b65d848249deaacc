"""Finds the shortest story of a failure: takes actions out while the same invariant is still violated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, Protocol, Self, TypeVar

from tests.kit.simulation.script import Action

TRIES_MAX: Final = 300
"""Runs that shrinking may take."""


class Script(Protocol):
    """A plan of a run."""

    @property
    def actions(self) -> tuple[Action, ...]:
        """Returns its actions."""

    def with_actions(self, actions: Iterable[Action]) -> Self:
        """Returns the same cluster, with another script."""


P = TypeVar("P", bound=Script)


class Shrinker(Generic[P]):
    """Shrinks the script, then the cluster (delta debugging). ``fails``: whether a plan still shows the failure."""

    def __init__(self, fails: Callable[[P], bool], tries_max: int = TRIES_MAX) -> None:
        self._fails = fails
        self.tries_left = tries_max

    def shrink(self, plan: P) -> P:
        """Returns a plan that still fails, as short as the bound allows."""
        plan = self._actions(plan)
        plan = self._cluster(plan)
        return self._actions(plan)

    def _still(self, plan: P) -> bool:
        if self.tries_left <= 0:
            return False
        self.tries_left -= 1
        return self._fails(plan)

    def _actions(self, plan: P) -> P:
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

    def _without(self, plan: P, size: int) -> P | None:
        """Returns the plan without one part of ``size`` actions; the last part is tried first."""
        for start in range(max(0, len(plan.actions) - size), -size, -size):
            kept: Sequence[Action] = [*plan.actions[: max(0, start)], *plan.actions[max(0, start) + size :]]
            if len(kept) < len(plan.actions) and self._still(candidate := plan.with_actions(kept)):
                return candidate
        return None

    def _cluster(self, plan: P) -> P:
        """Returns a simpler cluster, where that still fails; here the cluster stays as it is."""
        return plan
