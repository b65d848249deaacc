"""Knows which balance is under way, and counts what balances have done; each is a procedure of its own."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from controller.procedures.engine import Engine
from controller.regions.environment import RegionsEnv
from controller.regions.metrics import RegionCounters
from controller.regions.procedures.balance import NAME, Problem, problem_of
from controller.regions.procedures.balance_plan import BALANCE_TASK, BalanceTask, skips
from state_machines.procedures.record import Record
from state_machines.procedures.transition import Transition


class Balancing:
    """Looks at the balances of a term. ``counters``: over all terms of the process."""

    def __init__(self, env: RegionsEnv, engine: Engine[RegionsEnv], counters: RegionCounters) -> None:
        self._env, self._engine, self.counters = env, engine, counters

    def running(self) -> int:
        """Returns the pid of the balance that is under way, 0 without one."""
        return next((one.pid for one in self._engine.live() if one.kind == NAME), 0)

    def last(self) -> Record | None:
        """Returns the record of the balance that ended last, as far as its result is kept."""
        return max((one for one in self._engine.ended() if one.kind == NAME), key=lambda one: one.pid, default=None)

    def problem(self, *, force: bool = False) -> Problem | None:
        """Returns why no balance begins now; None where one may."""
        return problem_of(self._env, self.running(), force=force)

    def refused(self, problem: Problem) -> None:
        """Counts a balance that could not begin."""
        self.counters.balance_refusals[problem.bar.value] += 1

    def changed(self, moved: Sequence[Transition]) -> None:
        """Takes durable changes of procedures: counts plans and moves, and forgets plans of what has ended."""
        for before, after in moved:
            if after.kind != NAME:
                continue
            if after.state.is_final:
                self._env.planner.forget(after.pid)
            if before is not None and before.data != after.data:
                self._count(before, after)

    def _count(self, before: Record, after: Record) -> None:
        try:
            was: BalanceTask = BALANCE_TASK.decode(before.data)
            now: BalanceTask = BALANCE_TASK.decode(after.data)
        except msgspec.DecodeError:  # its record could not be used, and was removed
            return
        counters = self.counters
        if now.servers and not was.servers:
            counters.balances += 1
            counters.balance_cost = now.before
        left_out = skips(now) - skips(was)
        counters.balance_moves_left_out += left_out
        counters.balance_moves += now.begun - was.begun - left_out.total()
