"""Adds the verb that has regions crowd at one server, balances them, and gets in the way of the plan."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from controller.procedures.requests import ProcedureRefused
from controller.regions.procedures import balance, move, servers
from controller.regions.procedures.balance_plan import BALANCE_TASK, BalanceTask
from controller.regions.procedures.messages import MOVE, Move
from metadata_store.records.port import StoreFailed
from state_machines.procedures.record import Caller
from state_machines.regions.marks import MarkKind
from state_machines.regions.states import RegionState
from tests.simulation.regions.actions import submit, verb

if TYPE_CHECKING:
    from controller.regions.term import RegionsTerm
    from tests.simulation.regions.world import SimulatedRegions

TRIES: Final = 40
"""How often an operator looks whether a balance may begin, or whether its plan is there."""
AGAIN_S: Final = 0.25
CROWD_MAX: Final = 5
MOVES_TOGETHER: Final = 1
SPREAD_MS: Final = 3_000
"""Settings of all runs: there is time to get in the way of the later moves of a plan."""


@verb
def balance_(world: SimulatedRegions, name: str) -> None:
    """Moves regions to one server, and balances them once that may begin; then one is pinned, and one moved."""
    if (process := world.active) is not None and process.alive and world.term is not None:
        process.start(_balanced(world, world.term, name))


async def _balanced(world: SimulatedRegions, term: RegionsTerm, name: str) -> None:
    model, records = term.env.model, term.engine.records
    if not await _looked(lambda: balance.problem_of(term.env) is None):
        return  # the run may be at its end by now, where nothing may move
    crowd = [one for one in model.regions.values() if one.state is RegionState.OPEN and not one.pid][:CROWD_MAX]
    for found in crowd:
        submit(world, move.NAME, MOVE.encode(Move(found.id, found.table.name, name, "a crowd")))
    await asyncio.sleep(AGAIN_S)
    await _looked(lambda: balance.problem_of(term.env) is None)
    try:
        pid = await term.engine.submit(balance.NAME, BALANCE_TASK.encode(BalanceTask(force=True)), Caller("User:ops"))
    except (ProcedureRefused, StoreFailed):
        world.counts["refused"] += 1
        return
    await _looked(lambda: pid in records and bool(BALANCE_TASK.decode(records[pid].data).moves))
    task: BalanceTask = BALANCE_TASK.decode(records[pid].data) if pid in records else BalanceTask()
    for number, one in enumerate(task.moves[1:]):
        region = model.regions.get(one.region)
        if region is not None and number % 2:
            mark = servers.MarkTask(MarkKind.PIN, str(one.region), task.names[one.source])
            submit(world, servers.MARK, servers.MARK_TASK.encode(mark))
        elif region is not None:
            submit(world, move.NAME, MOVE.encode(Move(one.region, region.table.name, "", "in the way")))


async def _looked(holds: Callable[[], bool]) -> bool:
    """Looks some times whether something holds; returns whether it does."""
    for _ in range(TRIES):
        if holds():
            return True
        await asyncio.sleep(AGAIN_S)
    return False
