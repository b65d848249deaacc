"""Describes plans of balances: their moves, how far each is, and the costs before and after them."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from controller.http.models import Item
from controller.http.procedures import Procedure
from controller.process.wording import counted
from controller.regions.environment import RegionsEnv
from controller.regions.planner import Made
from controller.regions.procedures import balance
from controller.regions.procedures.balance_plan import BalanceTask, PlannedMove, planned
from state_machines.regions.balancing.checks import SKIPPED, Skip
from state_machines.regions.balancing.cluster import BalancePlan


class BalanceMove(Item):
    """A move of a plan. ``state``: *waits*, *left out*, *moves*, *there* or *elsewhere*: where the region is now."""

    region: int
    table: str | None = Field(None, description="absent where the region is gone")
    source: str
    to: str
    state: str
    because: str


class BalanceCost(Item):
    """One cost that a balance lowers. ``before``, ``after`` its moves: from 0, the best, to 1, the worst."""

    name: str
    weight: float
    before: float
    after: float


class BalanceRun(Procedure):
    """The procedure of a balance; of a dry run with the plan that it would store."""

    moves: list[BalanceMove] = Field([], description="of a dry run: at most 2,000, in their order")
    costs: list[BalanceCost] = Field([], description="of a dry run")


def foreseen(made: Made, env: RegionsEnv, note: str) -> BalanceRun:
    """Describes what a balance would do. ``note``: what would keep it from beginning, empty without."""
    task = planned(BalanceTask(), made)
    return BalanceRun(
        pid=0,
        kind=balance.NAME,
        state="planned",
        detail="; ".join(filter(None, (_about(task, env), note))),
        moves=list(moves_of(env, task)),
        costs=list(_costs(made.plan)),
    )


def _about(task: BalanceTask, env: RegionsEnv) -> str:
    """Says what a balance would do."""
    count = len(task.moves) + task.left
    if not count:
        return f"nothing to move: {counted(task.regions, 'region')} at {counted(task.servers, 'server')}"
    left = f", {task.left} of them with the next balance" if task.left else ""
    return (
        f"{count} of {counted(task.regions, 'region')} would move between {counted(task.servers, 'server')}{left}, "
        f"{env.options.balancer_moves_together} at a time; cost {task.before:.3f}, then {task.after:.3f}"
    )


def _costs(plan: BalancePlan) -> Iterator[BalanceCost]:
    for before, after in zip(plan.before, plan.after, strict=True):
        yield BalanceCost(name=before.name, weight=before.weight, before=before.value, after=after.value)


def moves_of(env: RegionsEnv, task: BalanceTask) -> Iterator[BalanceMove]:
    """Yields the moves of a plan in their order."""
    for number, one in enumerate(task.moves):
        region = env.model.regions.get(one.region)
        yield BalanceMove(
            region=one.region,
            table=None if region is None else region.table.name,
            source=task.names[one.source],
            to=task.names[one.to],
            state=_state(env, task, one, is_begun=number < task.begun),
            because=SKIPPED[Skip(one.skip)] if one.skip else task.whys[one.why],
        )


def _state(env: RegionsEnv, task: BalanceTask, one: PlannedMove, *, is_begun: bool) -> str:
    """Returns how far a move is."""
    if not is_begun:
        return "waits"
    if one.skip:
        return "left out"
    region = env.model.regions.get(one.region)
    if region is not None and region.id in env.model.transit:
        return "moves"
    at = "" if region is None or region.server is None else region.server.name
    return "there" if at == task.names[one.to] else "elsewhere"
