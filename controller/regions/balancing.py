"""Knows which balance is under way, counts what balances have done, and begins one where regions are not even."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from controller.procedures.engine import Engine
from controller.regions.child_balancer import NoPlan
from controller.regions.environment import RegionsEnv
from controller.regions.manager import Manager
from controller.regions.membership import Membership, difference, membership
from controller.regions.metrics import RegionCounters
from controller.regions.procedures.balance import NAME, Problem, arrived, problem_of
from controller.regions.procedures.balance_plan import BALANCE_TASK, BalanceTask, skips
from state_machines.procedures.record import Record
from state_machines.procedures.transition import Transition
from state_machines.regions.balancing.checks import Bar
from state_machines.regions.balancing.pace import Due, Pace

log = logging.getLogger("regent.regions")

UNEVEN: Final = "regions are not even"
WHY: Final = f"{UNEVEN} (regions.balancer_period_ms)"
CHECK_MS: Final = 5_000
"""Time after which the servers are compared again, where the settings want no shorter one."""


class NextLook(Struct, frozen=True, gc=False):
    """When the daemon looks next, on the wall clock; 0: it does not. ``because``: why then, or why not."""

    at_ms: int
    because: str


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
        self._has_rest = False
        self._members = membership(env.model)
        """The servers at the last look that came to its end."""
        self._seen = self._members
        self._latest = ""
        """The latest cause that delayed the next look: a change of the servers, or a look that began no balance."""
        self._pace = Pace(env.options.balancer_period_ms, env.options.balancer_joins_ms, env.now_ms())

    async def keep(self) -> None:
        """Looks once in each period of the settings, and after servers have come or gone; never where that is 0."""
        options = self._env.options
        if not options.balancer_period_ms:
            return
        _announce(self._env)
        self._members = self._seen = membership(self._env.model)
        check_ms = min(CHECK_MS, options.balancer_period_ms, options.balancer_joins_ms or CHECK_MS)
        while True:
            await asyncio.sleep(check_ms / 1000)
            weight = self._env.model.marks.weight
            shares = {(*one.key, weight(one.name)) for one in self._env.servers()}
            self._notice()
            if self._pace.is_due(shares, self._env.now_ms()):
                await self.look()

    async def look(self) -> bool:
        """Begins a balance where one may begin, and is due; returns whether it does."""
        self._looks += 1
        if self.running() or not self._may_begin():  # a balance of its own under way is nothing to tell of
            self._hindered()
            return False
        members = membership(self._env.model)
        why = self._why(members)
        self._pace.looked(self._env.now_ms())
        self._latest = ""
        if not self._has_rest and self._env.planner.is_even():
            self._members = members
            return False
        try:
            made = await self._env.planner.make()
        except NoPlan as error:
            log.warning("no plan of a balance could be made: %s; the next look tries again", error)
            return False
        if not (made.plan.moves and (made.plan.due or self._has_rest)):
            self._has_rest, self._members = False, members
            return False
        if not self._may_begin():  # again: anything may have begun meanwhile
            self._hindered()
            return False
        nonce = f"balance {self._looks} of term {self._manager.epoch}"
        begins = self._manager.start(NAME, BALANCE_TASK.encode(BalanceTask(why)), nonce, why)
        if begins:
            self._members = members
            self._env.planner.keep(made, nonce)
        return begins

    def _notice(self) -> None:
        """Remembers how the servers have changed last."""
        members = membership(self._env.model)
        if change := difference(self._seen, members):
            self._latest = change
        self._seen = members

    def _hindered(self) -> None:
        """Enters that the look began no balance, and why."""
        self._pace.hindered(self._env.now_ms())
        problem = self.problem()
        why = self._suspended() or ("" if problem is None else problem.what)
        self._latest = f"the last look began no balance{f' ({why})' if why else ''}"

    def _why(self, members: Membership) -> str:
        """Returns the cause of a balance, with the changes of the servers since the last look that came to its end."""
        if change := difference(self._members, members):
            return f"{UNEVEN}: {change}"
        return f"{UNEVEN}: the balance before has left moves to this one" if self._has_rest else WHY

    def next_look(self) -> NextLook:
        """Returns when the daemon looks next, and why then, or why it does not."""
        env, problem = self._env, self.problem()
        if not env.options.balancer_period_ms:
            return NextLook(0, "regions.balancer_period_ms is 0, so only 'regent balancer run' balances")
        if problem is not None and problem.bar is Bar.OFF:
            return NextLook(0, str(problem))
        hindered = self._suspended() or ("" if problem is None else problem.what)
        if hindered:
            then = f"; it begins no balance as long as this holds: {hindered}"
        else:
            then = "; it begins no balance where regions are as even as now" if env.planner.is_even() else ""
        left_ms = max(0, self._pace.next_ms - env.now_ms())
        return NextLook(env.wall_ms() + left_ms, self._due() + then)

    def _due(self) -> str:
        options = self._env.options
        match self._pace.due:
            case Due.CHANGE:
                change = difference(self._members, membership(self._env.model))
                if self._latest not in change:
                    change = "; ".join(filter(None, (change, f"at last {self._latest}")))
                change = change or "servers have come to this daemon"
                return f"{change}, and the look comes {options.balancer_joins_ms / 1000:g} s after the last such change"
            case Due.HINDERED:
                return f"no balance could begin, and the look is repeated after {options.balancer_joins_ms / 1000:g} s"
            case Due.IDLE:
                return f"the last balance brought no region to its place: {self._pace.periods} periods after that look"
            case Due.PERIOD:
                return f"a look comes each {options.balancer_period_ms / 1000:g} s"

    def _may_begin(self) -> bool:
        """Checks whether a balance may begin; logs and counts each cause once until it changes."""
        problem, suspended = self.problem(), self._suspended()
        why = suspended or ("" if problem is None else problem.what)
        cause = suspended or ("" if problem is None else problem.bar.value)  # numbers in its words may change
        if cause != self._told:
            log.info("regions are %s", f"not balanced by themselves for now: {why}" if why else "balanced again")
            self._told = cause
            if problem is not None:
                self.refused(problem)
        return not why

    def running(self) -> int:
        """Returns the pid of the balance that is under way, 0 without one."""
        return next((one.pid for one in self._engine.live() if one.kind == NAME), 0)

    def last(self) -> Record | None:
        """Returns the record of the balance that ended last, as far as its result is kept."""
        return max((one for one in self._engine.ended() if one.kind == NAME), key=lambda one: one.pid, default=None)

    def problem(self, *, force: bool = False, off: bool = True) -> Problem | None:
        """Returns why no balance begins now; None where one may. ``off`` False: apart from the switch."""
        return problem_of(self._env, self.running(), force=force, off=off)

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
                self._ended(after)
            if before is not None and before.data != after.data:
                self._count(before, after)

    def _ended(self, record: Record) -> None:
        """Has the next look wait longer where no region came to where it was to be: it would plan the same again.

        What did not fit into the plan is the next one's, even where no server misses its share by the slop any more.
        """
        try:
            task: BalanceTask = BALANCE_TASK.decode(record.data)
        except msgspec.DecodeError:  # its record could not be used, and was removed
            return
        moved = not task.moves or arrived(self._env, task) > 0
        self._has_rest = moved and task.left > 0 and not task.off
        self._pace.ended(moved=moved)

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


def _announce(env: RegionsEnv) -> None:
    """Says in the log what the daemon will do by itself, and how that is ended."""
    options = env.options
    joins_s = options.balancer_joins_ms / 1000
    log.info(
        "regions are balanced by themselves: a look each %g s%s begins a balance where %s; 'regent balancer off' ends "
        "that, and regions.balancer_period_ms = 0 does for good",
        options.balancer_period_ms / 1000,
        f", and once no server has come or gone for {joins_s:g} s," if joins_s else "",
        "it lowers the cost"
        if options.balancer == "stochastic"
        else f"a server misses its share by more than {options.balancer_slop_percent} %",
    )
