"""Gives some stores the oldest level, and checks what daemons write before an operator raises it.

LevelKept: no write has a row, or the record of a procedure, that the level of the store does not allow, or lowers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from controller.regions.levels import OF_ROWS
from metadata_store.catalog.rows import MarkRow, NewRegions, Put, PutTable, Reshape
from state_machines.procedures.record import Record
from state_machines.regions.levels import FORMS, KINDS, NEWEST, OLDEST, Form
from state_machines.regions.marks import STORE, MarkKind

if TYPE_CHECKING:
    from testing.memory.region_store import RegionDisk
    from tests.simulation.regions.world import SimulatedRegions

PLACE: Final = (MarkKind.LEVEL, STORE)


def begin(disk: RegionDisk, level: int) -> None:
    """Gives a store that is new a level below the newest one: daemons of an earlier release have made it."""
    if level < NEWEST:
        disk.marks[PLACE] = MarkRow(*PLACE, str(level))


class Levels:
    """Looks at writes by the level that was durable before them."""

    def __init__(self, world: SimulatedRegions) -> None:
        self._world = world
        self._level = world.plan.level

    def restored(self) -> None:
        """Takes the level of a copy."""
        self._level = self._stored()

    def written(self, puts: Sequence[Record], rows: Sequence[object]) -> None:
        """Looks at a write."""
        if self._level < NEWEST:
            for what, needs in (*_of_records(puts), *_of_rows(rows)):
                if needs > self._level:
                    self._world.violated("LevelKept", f"{what} needs level {needs}, and the store has {self._level}")
        before, self._level = self._level, self._stored()
        if self._level < before:
            self._world.violated("LevelKept", f"the level of the store falls from {before} to {self._level}")

    def _stored(self) -> int:
        mark = self._world.disk.marks.get(PLACE)
        return (OLDEST if self._world.disk.tables else NEWEST) if mark is None else int(mark.value)


def _of_records(puts: Sequence[Record]) -> list[tuple[str, int]]:
    return [(f"pid {one.pid} {one.kind}", KINDS.get(one.kind, NEWEST)) for one in puts]


def _of_rows(rows: Sequence[object]) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for row in rows:
        match row:
            case Reshape():
                found += _of_rows(row.parts)
            case Put(small) if type(small) in OF_ROWS:
                found.append((f"{small}", FORMS[OF_ROWS[type(small)]]))
            case PutTable(table) if table.version:
                found.append((f"{table}", FORMS[Form.VERSIONS]))
            case NewRegions(regions):
                found += [(f"{one}", FORMS[Form.VERSIONS]) for one in regions if one.version]
    return found
