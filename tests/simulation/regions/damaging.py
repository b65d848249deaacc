"""Loses the row of a region while no daemon runs, as an edit of the store by hand does, and has operators repair that.

ForgottenIsClosed: none serves a region whose row is removed, because others have its keys.
RepairAlone: as a region of a repair becomes durable, no process serves keys of it, and no change of its table goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

from controller.http.documents import ViewError
from controller.regions.operator.records import message_of
from controller.regions.operator.repairs import Adoption
from controller.regions.operator.report import About, held_of
from controller.regions.procedures import adopting, fixing
from metadata_store.catalog.rows import DropRegions, HeirRow, NewRegions, ParentRow, RegionRow, SnapshotPartRow
from state_machines.procedures.record import Record
from state_machines.regions.findings import Finding, Scope
from state_machines.regions.layout import key_text
from state_machines.regions.report import Judge
from state_machines.regions.states import RegionState, TableState
from tests.simulation.regions.actions import too_low, verb
from tests.simulation.regions.commands import does, operator_of
from tests.simulation.regions.operating import REPAIRS, WHO, Operator, Refusal, acts
from tests.simulation.regions.operators import upgrade
from tests.simulation.regions.shaping import SHAPING, modify, split_

if TYPE_CHECKING:
    from controller.regions.term import RegionsTerm
    from tests.simulation.regions.world import SimulatedRegions

DOWN_S: Final = 0.3
"""Time for which no daemon runs while the store is edited."""
REPAIRS_S: Final = (0.6, 0.7, 2.0, 5.0)
"""Times from the start of the daemons to the repairs that operators ask for: the first two come together."""
MAKING: Final = {fixing.NAME: fixing.OPEN, adopting.NAME: adopting.OPEN}
"""Kinds that make regions, with the step that their records have from the write of these on."""
BESIDE_S: Final = 0.1
"""Time between the first repair and changes of its table, which come before it and after it."""
WHY: Final = "its row is lost"


class Damage:
    """Knows what is lost in one run. ``lost``: rows by the ids of their regions, until their keys have regions."""

    def __init__(self, world: SimulatedRegions) -> None:
        self._world = world
        self.lost: dict[int, RegionRow] = {}
        self.doubles: dict[int, RegionRow] = {}
        """Rows that this run has given keys of others."""
        self.ways: dict[int, str] = {}
        """How the rows of regions are repaired that were lost in this run."""
        self._holes: set[str] = set()
        self._copied: tuple[dict[int, RegionRow], set[str]] = {}, set()

    def loses(self, row: RegionRow, how: str) -> None:
        """Notes that a row is lost."""
        self.lost[row.id], self.ways[row.id] = row, how
        self._holes.add(row.table)

    def doubled(self, row: RegionRow) -> None:
        """Notes a row with keys of another one."""
        self.doubles[row.id] = row
        self._holes.add(row.table)

    def is_double(self, region: int) -> bool:
        """Checks whether a region has keys of another one, and may be open beside that: its row is there."""
        return region in self.doubles and region in self._world.disk.regions

    def copied(self) -> None:
        """Notes that the store is copied."""
        self._copied = dict(self.lost), set(self._holes)

    def restored(self) -> None:
        """Takes what the copy lacks."""
        self.lost, self._holes = dict(self._copied[0]), set(self._copied[1])

    def is_known(self, table: str) -> bool:
        """Checks whether keys of a table may have no region."""
        return table in self._holes

    def whole(self, table: str) -> None:
        """Notes that each key of a table has a region."""
        self._holes.discard(table)

    def written(self, puts: Iterable[Record], rows: Sequence[object]) -> None:
        """Looks at a write: those of repairs meet nothing that goes on with their keys."""
        for id_ in self.lost.keys() & self._world.disk.regions.keys():
            del self.lost[id_]
        self._forgotten({id_ for one in rows if isinstance(one, DropRegions) for id_ in one.ids})
        repairs = [one for one in puts if one.step == MAKING.get(one.kind)]
        if not repairs:
            return
        for row in (row for one in rows if isinstance(one, NewRegions) for row in one.rows):
            repair = next((one for one in repairs if message_of(one).table == row.table), None)
            if repair is not None:
                self._look(repair, row)

    def _forgotten(self, gone: set[int]) -> None:
        """Looks at regions with keys of others whose rows are removed: no process serves them."""
        world = self._world
        for id_ in gone & self.doubles.keys():
            world.counts["forgotten"] += 1
            row = self.doubles[id_]
            if found := [one for one in world.serving(row.table, row.start, row.end) if one[1] == id_]:
                world.violated("ForgottenIsClosed", f"the row of region {id_} is removed, {found} serve it")

    def _look(self, repair: Record, row: RegionRow) -> None:
        world = self._world
        world.counts["adopted" if repair.kind == adopting.NAME else "filled"] += 1
        changing = [str(one) for one in _changes(world) if getattr(message_of(one), "table", "") == row.table]
        if found := changing or world.serving(row.table, row.start, row.end):
            world.violated("RepairAlone", f"pid {repair.pid} makes {row}, beside {found}")


def _changes(world: SimulatedRegions) -> list[Record]:
    """Returns the changes of tables that go on with their locks."""
    term = world.term
    live = [] if term is None else term.engine.live()
    return [one for one in live if one.locked and one.kind in SHAPING]


# -- verbs


@verb
def lose_row(world: SimulatedRegions, number: str, how: str) -> None:
    """Stops all daemons, and loses the row of a region that is open. ``how``: how it is repaired, adopt or fill."""
    term = world.term
    rows = [] if term is None else losable(world, term, how)
    if not rows:
        return
    row = rows[int(number) % len(rows)]
    for daemon in world.daemons.values():
        daemon.kill()
        daemon.start_later(DOWN_S)
    del world.disk.regions[row.id]
    world.damage.loses(row, how)
    world.counts["rows lost"] += 1
    world.note(f"the row of region {row.id} is lost: {row}")
    loop = world.loop
    for beside, change in enumerate((modify, split_)):
        at_s = loop.now_s + DOWN_S + REPAIRS_S[0] + (beside - 0.5) * BESIDE_S
        loop.call_at(at_s, change, world, row.table, str(beside), context=loop.root)
    for after_s in REPAIRS_S:
        loop.call_at(loop.now_s + DOWN_S + after_s, repair, world, row, how, context=loop.root)


def repair(world: SimulatedRegions, row: RegionRow, how: str) -> None:
    """Has a region stored again, or its keys go to an empty one."""

    async def work(operator: Operator) -> None:
        if how == "adopt":
            start, end = key_text(row.start), key_text(row.end)
            wanted = Adoption(table=row.table, start=start, end=end, reason=WHY)
            try:
                await operator.repairs.adopt(row.id, wanted, WHO)
            except ViewError as error:
                world.note(f"region {row.id} is not adopted: {error.message}; {error.remedy}")
        else:
            await operator.does(f"tables fix-keys {row.table}")

    does(world, work, operator_of(world))


SUBJECT: Final = 2
"""Place of what a command is about."""


def repair_all(world: SimulatedRegions) -> None:
    """Does what the report names for tables and regions that have lost rows, those whose ids are known first."""
    term = world.term
    if not (world.damage.ways or world.damage.doubles) or term is None:
        return
    for id_, row in world.damage.lost.items():
        if world.damage.ways[id_] == "adopt":
            repair(world, row, "adopt")
    if too_low(world, term, fixing.NAME):
        upgrade(world)  # its level does not allow repairs

    async def work(operator: Operator) -> None:
        for one in found_in(term):
            for words in map(str.split, filter(acts, Refusal(one.mend).commands)):
                if words[1] in REPAIRS and len(words) > SUBJECT:  # a part that a split makes has no id yet
                    await operator.does(" ".join(words))

    does(world, work, operator_of(world))


def found_in(term: RegionsTerm) -> list[Finding]:
    """Returns what a report finds."""
    judge, about = Judge(term.env.model, Scope()), About()
    about.take(term.engine.records.values())
    for _ in chain(judge.of_keys(), judge.of_rest(held_of(term, about))):
        pass
    return judge.found.listed


def losable(world: SimulatedRegions, term: RegionsTerm, how: str) -> list[RegionRow]:
    """Returns the rows of open regions with which nothing goes on; nothing refers to those that are not adopted."""
    disk, model, about = world.disk, term.env.model, About()
    about.take(term.engine.records.values())
    needed = _needed(world) if how == "fill" else set()
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


def _needed(world: SimulatedRegions) -> set[int]:
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
