"""Gives keys of a region to another one, too, while no daemon runs, and has operators forget that beside all else.

Clients get no route to such keys, so both may be open until the row is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.regions.procedures import many
from controller.regions.procedures.messages import MANY, Many
from metadata_store.catalog.rows import RegionRow
from state_machines.regions.states import RegionState
from tests.simulation.regions.actions import submit, verb
from tests.simulation.regions.commands import does, operator_of
from tests.simulation.regions.damaging import DOWN_S, losable
from tests.simulation.regions.operating import Operator

if TYPE_CHECKING:
    from tests.simulation.regions.world import SimulatedRegions

FIRST: Final = 900
"""Id of the first such region: the store gives out others."""
PARTS: Final = ("same", "part")
"""Which keys of the other one it gets."""
FORGETS_S: Final = (0.6, 0.6, 2.0, 5.0)
"""Times from the start of the daemons to the requests of operators: the first two come together."""
ASSIGNS_S: Final = (0.6, 0.61, 2.0)
"""Times of batches that open the region, as that of a table would."""
KILLS_S: Final = 0.55
BACK_S: Final = 1.0


@verb
def double_row(world: SimulatedRegions, number: str, part: str, server: str) -> None:
    """Stops all daemons, and stores a row with the keys of an open region, or with a part of them, as closed."""
    term = world.term
    rows = [] if term is None else losable(world, term, "fill")
    if not rows:
        return
    row = rows[int(number) % len(rows)]
    inside = row.start + b"1"
    start = inside if part == "part" and (not row.end or inside < row.end) else row.start
    double = RegionRow(FIRST + len(world.damage.doubles), row.table, start, row.end, int(RegionState.CLOSED))
    for daemon in world.daemons.values():
        daemon.kill()
        daemon.start_later(DOWN_S)
    world.disk.regions[double.id] = double
    world.damage.doubled(double)
    world.counts["rows doubled"] += 1
    world.note(f"region {double.id} has keys of region {row.id}: {double}")
    loop = world.loop
    batch = MANY.encode(Many(double.table, "operator", ids=(double.id,)))
    for after_s in ASSIGNS_S:
        loop.call_at(loop.now_s + DOWN_S + after_s, submit, world, many.ASSIGN_MANY, batch, context=loop.root)
    for after_s in FORGETS_S:
        loop.call_at(loop.now_s + DOWN_S + after_s, forget, world, double.id, context=loop.root)
    loop.call_at(loop.now_s + DOWN_S + KILLS_S, _kill, world, server, context=loop.root)


def forget(world: SimulatedRegions, region: int) -> None:
    """Has an operator open a region whose keys another one has, which is refused, and forget it."""

    async def work(operator: Operator) -> None:
        await operator.does(f"regions assign {region}")
        await operator.does(f"regions forget {region}")

    does(world, work, operator_of(world))


def _kill(world: SimulatedRegions, server: str) -> None:
    world.servers[server].kill()
    world.servers[server].start_later(BACK_S)
