"""Split: the keys of a region go to two heirs, at a key (HBase ``SplitTableRegionProcedure``).

The key is given, or its server names the one that halves the data. The ids of the heirs are reserved before, so that
the lock of the procedure names them from the begin.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from controller.procedures.kinds import Effect, Kind, Step
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import messages, region_work, reshaping
from controller.regions.procedures.messages import SHAPE, Shape
from controller.regions.procedures.reshaping import METADATA, Problem
from regent_agent.protocol import SPLIT_KEY
from state_machines.procedures.outcome import Children, Failed, Outcome
from state_machines.procedures.record import Record
from state_machines.regions.entities import Region
from state_machines.regions.heirs import key_problem

NAME: Final = reshaping.SPLIT
PREPARE: Final = 0
CLOSE: Final = 1
COMMIT: Final = 3
OPEN: Final = 4
"""Point of no return: the record has this step from the write of the commit on."""
HEIRS: Final = 2
GIVE_ONE: Final = "give one between its bounds by --key, see 'regent regions describe ID'"


async def splitting(env: RegionsEnv, region: Region, key: bytes, why: str) -> bytes:
    """Returns the message of a split of a region; reserves the ids of its heirs. ``key``: empty: its server names it.

    Raises ``StoreFailed``.
    """
    first = await env.reserve(HEIRS)
    return SHAPE.encode(Shape(region.table.name, (region.id,), (first, first + 1), key, why))


def split_problem(env: RegionsEnv, region: Region, key: bytes) -> Problem | None:
    """Returns why a region cannot be split now; None where it can. ``key``: empty: its server names it."""
    if key and (why := key_problem(region, key)) is not None:
        return Problem(why, GIVE_ONE)
    if (problem := reshaping.problem_of(env, (region,), HEIRS)) is not None:
        return problem
    if not key and region.server is not None and SPLIT_KEY not in region.server.features:
        return Problem(f'{region.server} lacks the feature "{SPLIT_KEY}", and names no key for {region}', GIVE_ONE)
    return None


async def prepare(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Judges the region, has its server name a key where none is given, and begins to take its keys away."""
    task: Shape = SHAPE.decode(record.data)
    found = reshaping.ready(env, record, task)
    if isinstance(found, Failed):
        return found
    (region,) = found
    if (judged := reshaping.judged(env, record, found, HEIRS)) is not None:
        return judged
    if not (task.key or record.told):
        asked = region_work.working(region, SPLIT_KEY, why=task.why, tells=True, stays=True)
        return Children((asked,), PREPARE, record.data)
    key = task.key or record.told[0][1]
    if why := key_problem(region, key) if key else f"the server of region {region} knows no key that halves it":
        return Failed(f"{why}: {GIVE_ONE}")
    assert region.server is not None, "it is open"
    chosen = replace(task, key=key, inherits=env.options.split != METADATA, server=region.server.name)
    return reshaping.leaves(env, record, chosen, found, CLOSE)


SPLIT_REGION: Final[Kind[RegionsEnv]] = Kind(
    NAME,
    (Step("prepare", prepare, reshaping.undo), *reshaping.CHANGES),
    reshaping.demand,
    no_return=OPEN,
    holds_locks=True,
    members=messages.of_shape,
)
