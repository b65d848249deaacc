"""Plants bugs in balances of regions."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from msgspec.structs import replace

from controller.regions.planner import Planner
from controller.regions.procedures import balance
from controller.regions.procedures.balance import BALANCE
from controller.regions.procedures.balance_plan import BALANCE_TASK, BalanceTask, planned
from state_machines.procedures.record import Record
from state_machines.regions.balancing.checks import Skip, skip_of
from tests.kit.simulation.planting import put
from tests.simulation.regions.planting import Step, mutation, put_step


@mutation
def move_before_the_plan_is_stored(stack: ExitStack) -> None:
    """Begins the first moves in the step that makes the plan: they are sent before any record has it."""

    def changed(step: Step) -> Step:
        async def plan(env: Any, record: Record) -> Any:
            made = env.planner.made(record.pid) if env.planner.has_begun(record.pid) else None
            if made is None or isinstance(made, str):
                return await step(env, record)
            task: BalanceTask = BALANCE_TASK.decode(record.data)
            data = BALANCE_TASK.encode(planned(task, made))
            return await balance.move_some(env, replace(record, step=1, data=data))

        return plan

    put_step(stack, BALANCE, "plan", changed)


@mutation
def move_regions_that_are_elsewhere(stack: ExitStack) -> None:
    """Makes each move of a plan wherever its region is by then."""

    def anywhere(*given: Any, **more: Any) -> Skip | None:
        skip = skip_of(*given, **more)
        return None if skip is Skip.ELSEWHERE else skip

    put(stack, balance, "skip_of", anywhere)


@mutation
def balance_pinned_regions(stack: ExitStack) -> None:
    """Moves regions that are pinned, by the plan and by each move."""

    def unpinned(*given: Any, **more: Any) -> Skip | None:
        return skip_of(*given, **{**more, "pinned": False})

    def held(planner: Any, region: Any, *, inheriting: bool) -> bool:
        return bool(region.pid)

    put(stack, balance, "skip_of", unpinned)
    put(stack, Planner, "_is_held", held)


@mutation
def balance_whatever_the_level_of_the_store(stack: ExitStack) -> None:
    """Begins balances in a store whose level has none: an older daemon could not go on with them."""
    put(stack, balance, "lacking", lambda _level, _kind: None)
