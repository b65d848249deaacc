"""Knows which balance is under way, counts what balances have done, and begins one from time to time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from controller.procedures.engine import Engine
from controller.regions.child_balancer import NoPlan
from controller.regions.environment import RegionsEnv
from controller.regions.manager import Manager
from controller.regions.metrics import RegionCounters
from controller.regions.procedures.balance import NAME, Problem, problem_of
from controller.regions.procedures.balance_plan import BALANCE_TASK, BalanceTask, skips
from state_machines.procedures.record import Record
from state_machines.procedures.transition import Transition

log = logging.getLogger("regent.regions")

WHY: Final = "regions are not even (regions.balancer_period_ms)"


class Balancing:
    """Looks at the balances of a term. ``counters``: over all terms of the process.

    ``suspended``: returns why nothing can be stored for now.
    """

    def __init__(
        self,
        env: RegionsEnv,
        engine: Engine[RegionsEnv],
        manager: Manager,
        counters: RegionCounters,
        suspended: Callable[[], str],
    ) -> None:
        self._env, self._engine, self._manager, self.counters = env, engine, manager, counters
        self._suspended = suspended
        self._looks = 0
        self._told = ""

    async def keep(self) -> None:
        """Looks once in each period of the settings; never where that is 0."""
        period_s = self._env.options.balancer_period_ms / 1000
        while period_s:
            await asyncio.sleep(period_s)
            await self.look()

    async def look(self) -> bool:
        """Begins a balance where one may begin, and has something to move; returns whether it does."""
        self._looks += 1
        if not self._may_begin():
            return False
        try:
            made = await self._env.planner.make()
        except NoPlan as error:
            log.warning("no plan of a balance could be made: %s; the next look tries again", error)
            return False
        if not made.plan.moves or not self._may_begin():  # again: anything may have begun meanwhile
            return False
        nonce = f"balance {self._looks} of term {self._manager.epoch}"
        return self._manager.start(NAME, BALANCE_TASK.encode(BalanceTask(WHY)), nonce, WHY)

    def _may_begin(self) -> bool:
        """Checks whether a balance may begin; logs once why none does, and that one does again."""
        problem = self.problem()
        why = self._suspended() or ("" if problem is None else problem.what)
        if why != self._told:
            log.info("regions are %s", f"not balanced by themselves for now: {why}" if why else "balanced again")
            self._told = why
        if problem is not None:
            self.refused(problem)
        return not why

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
        """Counts the plans and moves of durable changes, and drops the plan of a balance that has ended."""
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
