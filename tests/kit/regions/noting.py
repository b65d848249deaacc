"""A store that notes its transactions, and a server that notes what it is told to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from controller.regions.term import RegionsTerm
from regent_agent.protocol import Operation, Result
from state_machines.procedures.record import Record
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.regions.world import Server


class Transaction(NamedTuple):
    """One write of the store."""

    puts: list[Record]
    deletes: list[int]
    rows: list[object]

    def is_about(self, pid: int) -> bool:
        return pid in self.deletes or any(put.pid == pid for put in self.puts)


class Noting(MemoryRegionStore):
    """A store that notes its transactions."""

    def __init__(self, noted: list[Transaction], disk: RegionDisk) -> None:
        super().__init__(disk)
        self._noted = noted

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        one = Transaction(list(puts), list(deletes), list(rows))
        await super().write(one.puts, one.deletes, one.rows)
        self._noted.append(one)


class Told(Server):
    """A server that remembers what it was told to do."""

    def __init__(self, term: RegionsTerm, name: str, incarnation: int = 1) -> None:
        super().__init__(term, name, incarnation)
        self.told: list[Operation] = []

    def do(self, operation: Operation) -> Result:
        self.told.append(operation)
        return super().do(operation)


def rows_of(noted: Iterable[Transaction]) -> list[object]:
    """Returns the rows of transactions, in their order."""
    return [row for one in noted for row in one.rows]
