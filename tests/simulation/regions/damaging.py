"""Loses the row of a region while no daemon runs, as an edit of the store by hand does, and has operators repair that.

RepairAlone: as a region of a repair becomes durable, no process serves keys of it, and no change of its table goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from controller.regions.operator.records import message_of
from controller.regions.operator.report import About
from controller.regions.procedures import fixing
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from metadata_store.catalog.rows import HeirRow, NewRegions, ParentRow, RegionRow, SnapshotPartRow
from state_machines.procedures.record import Record
from state_machines.regions.states import RegionState, TableState
from tests.simulation.regions.actions import submit, too_low, verb
from tests.simulation.regions.operators import upgrade
from tests.simulation.regions.shaping import SHAPING, modify, split_

if TYPE_CHECKING:
    from controller.regions.term import RegionsTerm
    from tests.simulation.regions.world import World

DOWN_S: Final = 0.3
"""Time for which no daemon runs while the store is edited."""
REPAIRS_S: Final = (0.6, 0.7, 2.0, 5.0)
"""Times from the start of the daemons to the repairs that operators ask for: the first two come together."""

REPAIRS: Final = frozenset({fixing.NAME})
BESIDE_S: Final = 0.1
"""Time between the first repair and changes of its table, which come before it and after it."""


class Damage:
    """Knows what is lost in one run. ``lost``: rows by the ids of their regions."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.lost: dict[int, RegionRow] = {}
        self._copied: dict[int, RegionRow] = {}

    def copied(self) -> None:
        """Notes that the store is copied."""
        self._copied = dict(self.lost)

    def restored(self) -> None:
        """Takes what the copy lacks."""
        self.lost = dict(self._copied)

    def is_known(self, table: str) -> bool:
        """Checks whether keys of a table may have no region."""
        return any(row.table == table for row in self.lost.values())

    def whole(self, table: str) -> None:
        """Notes that all keys of a table have a region."""
        for id_ in [id_ for id_, row in self.lost.items() if row.table == table]:
            del self.lost[id_]

    def written(self, puts: Iterable[Record], rows: Sequence[object]) -> None:
        """Looks at a write: those of repairs meet nothing that goes on with their keys."""
        repairs = [one for one in puts if one.kind in REPAIRS and one.step == fixing.OPEN]
        if not repairs:
            return
        for row in (row for one in rows if isinstance(one, NewRegions) for row in one.rows):
            repair = next((one for one in repairs if message_of(one).table == row.table), None)
            if repair is not None:
                self._look(repair, row)

    def _look(self, repair: Record, row: RegionRow) -> None:
        world = self._world
        world.counts["repaired"] += 1
        changing = [str(one) for one in _changes(world) if getattr(message_of(one), "table", "") == row.table]
        if found := changing or world.serving(row.table, row.start, row.end):
            world.violated("RepairAlone", f"pid {repair.pid} makes {row}, beside {found}")


def _changes(world: World) -> list[Record]:
    """Returns the changes of tables that go on with their locks."""
    term = world.term
    live = [] if term is None else term.engine.live()
    return [one for one in live if one.locked and one.kind in SHAPING]


# -- verbs


@verb
def lose_row(world: World, number: str) -> None:
    """Stops all daemons, and loses the row of a region that is open and that nothing else tells of."""
    term = world.term
    rows = [] if term is None else _losable(world, term)
    if not rows:
        return
    row = rows[int(number) % len(rows)]
    for daemon in world.daemons.values():
        daemon.kill()
        daemon.start_later(DOWN_S)
    del world.disk.regions[row.id]
    world.damage.lost[row.id] = row
    world.counts["rows lost"] += 1
    world.note(f"the row of region {row.id} is lost: {row}")
    loop = world.loop
    for beside, change in enumerate((modify, split_)):
        at_s = loop.now_s + DOWN_S + REPAIRS_S[0] + (beside - 0.5) * BESIDE_S
        loop.call_at(at_s, change, world, row.table, str(beside), context=loop.root)
    for after_s in REPAIRS_S:
        loop.call_at(loop.now_s + DOWN_S + after_s, repair, world, row.table, context=loop.root)


def repair(world: World, table: str) -> None:
    """Has the keys of a table that no region has go to an empty one, as 'regent tables fix-keys' does."""
    submit(world, fixing.NAME, TABLE_TASK.encode(TableTask(table, why="its row is lost")))


def repair_all(world: World) -> None:
    """Repairs each table that has lost a row; the level of the store is raised first where it does not allow that."""
    if world.damage.lost and world.term is not None and too_low(world, world.term, fixing.NAME):
        upgrade(world)
    for table in sorted({row.table for row in world.damage.lost.values()}):
        repair(world, table)


def _losable(world: World, term: RegionsTerm) -> list[RegionRow]:
    """Returns the rows of regions that are open, with which nothing goes on, and to which nothing refers."""
    disk, model, about = world.disk, term.env.model, About()
    about.take(term.engine.records.values())
    needed = _needed(world)
    return [
        row
        for row in sorted(disk.regions.values())
        if (region := model.regions.get(row.id)) is not None
        and (row.state, region.state) == (RegionState.OPEN, RegionState.OPEN)
        and region.table.state is TableState.ENABLED
        and not region.pid
        and row.id not in about.regions
        and row.table not in about.tables
        and row.id not in needed
    ]


def _needed(world: World) -> set[int]:
    """Returns the regions that have sources, and those to which others refer."""
    found: set[int] = set()
    for small in world.disk.small.values():
        match small:
            case HeirRow(id_, sources):
                found |= {id_, *(one.region for one in sources)}
            case ParentRow(heirs=heirs):
                found.update(heirs)
            case SnapshotPartRow(regions=regions):
                found.update(one.region for one in regions)
            case _:
                pass
    return found
