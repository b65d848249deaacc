"""Merge: neighbours of one table become one region (HBase ``MergeTableRegionsProcedure``).

They are moved to one server first: what the heir refers to was at one place last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from msgspec.structs import replace

from controller.procedures.kinds import Effect, Kind, Step
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import messages, move, reshaping
from controller.regions.procedures.messages import MOVE, SHAPE, Move, Shape
from controller.regions.procedures.reshaping import METADATA, TRIES_MAX, Problem
from state_machines.procedures.outcome import Children, Failed, Next, Outcome, Wait
from state_machines.procedures.record import Record, child
from state_machines.regions.entities import Region, Server, start_of
from state_machines.regions.heirs import neighbours_problem
from state_machines.regions.states import RegionState

NAME: Final = reshaping.MERGE
PREPARE: Final = 0
MOVES: Final = 1
CLOSE: Final = 2
COMMIT: Final = 4
OPEN: Final = 5
"""Point of no return: the record has this step from the write of the commit on."""
S = RegionState


async def merging(env: RegionsEnv, regions: Sequence[Region], why: str) -> bytes:
    """Returns the message of a merge of regions, in any order; reserves the id of their heir.

    Raises ``StoreFailed``.
    """
    parents = tuple(one.id for one in sorted(regions, key=start_of))
    return SHAPE.encode(Shape(regions[0].table.name, parents, (await env.reserve(1),), why=why))


def merge_problem(env: RegionsEnv, regions: Sequence[Region]) -> Problem | None:
    """Returns why regions, in any order, cannot be merged now; None where they can."""
    ordered = sorted(regions, key=start_of)
    if twice := next((one for one, other in pairwise(ordered) if one is other), None):
        return Problem(f"regions: {twice} is given twice", "give each region once")
    if (why := neighbours_problem(ordered)) is not None:
        return Problem(why, "'regent regions list --table NAME' lists regions in the order of their keys")
    return reshaping.problem_of(env, regions, 1)


async def prepare(env: RegionsEnv, record: Record) -> Outcome:
    """Judges the regions."""
    task: Shape = SHAPE.decode(record.data)
    found = reshaping.ready(env, record, task)
    if isinstance(found, Failed):
        return found
    if (why := neighbours_problem(found)) is not None:
        return Failed(why)
    if (judged := reshaping.judged(env, record, found, 1)) is not None:
        return judged
    return Next(MOVES, SHAPE.encode(replace(task, inherits=env.options.split != METADATA)))


async def together(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Has the regions moved to the server that has most of them; goes on once all are open there."""
    task: Shape = SHAPE.decode(record.data)
    found = reshaping.ready(env, record, task)
    if isinstance(found, Failed):
        return found
    target = _target(env, found)
    if target is None:
        env.unplaced.add(record.pid)
        return Wait(0, record.data, durable=False)
    apart = [one for one in found if one.server is not target or one.state is not S.OPEN]
    if not apart:
        return reshaping.leaves(env, record, replace(task, server=target.name, tries=0), found, CLOSE)
    if task.tries >= TRIES_MAX:
        return Failed(f"{apart[0]} is not open at {target} after {task.tries} moves: see 'regent regions explain'")
    moves = tuple(child(move.NAME, MOVE.encode(Move(one.id, task.table, target.name, task.why))) for one in apart)
    return Children(moves, MOVES, SHAPE.encode(replace(task, tries=task.tries + 1)))


def _target(env: RegionsEnv, regions: Sequence[Region]) -> Server | None:
    """Returns the server that has most of the regions, of those that may get further ones; else any of these."""
    servers = env.servers()
    has = Counter(one.server.key for one in regions if one.server is not None)
    return max(servers, key=lambda one: (has[one.key], one.name), default=None)


MERGE_REGIONS: Final[Kind[RegionsEnv]] = Kind(
    NAME,
    (
        Step("prepare", prepare, reshaping.undo),
        Step("move", together, reshaping.undo),
        *reshaping.CHANGES,
    ),
    reshaping.demand,
    no_return=OPEN,
    holds_locks=True,
    members=messages.of_shape,
)
