"""Knows what operators have ended: tables whose assigns end, and regions that no procedure moves any more."""

from __future__ import annotations

from typing import Final, NamedTuple

from state_machines.procedures.record import Record
from state_machines.regions.changes import change_problem
from state_machines.regions.model import Region, Table
from state_machines.regions.states import TableState


class Left(NamedTuple):
    """A region that no procedure moves. ``pid``: of the one that moved it, 0 where a failover has found it.

    ``given_up``: an operator has ended the procedure that was to open it.
    """

    region: Region
    pid: int = 0
    given_up: bool = False


class Ending(NamedTuple):
    """A live procedure that ends the assigns of a table. ``begins``: the state that it is to give to the table.

    Without that an operator has ended the procedure, which opens the regions of the table.
    """

    pid: int
    kind: str
    table: str
    begins: TableState | None

    def why(self) -> str:
        """Says why no region of the table is opened."""
        did = "was ended by an operator" if self.begins is None else "wants its table closed"
        return f"procedure {self.pid} ({self.kind}) {did}"


_NONE: Final[dict[TableState | None, dict[int, Ending]]] = {}


class Endings:
    """Holds the procedures that end the assigns of tables, because each of these may try for ever.

    A change that is to disable or delete a table waits for its lock, which the parents of assigns hold. What ends
    follows from the records of procedures alone, so a failover changes nothing.
    """

    def __init__(self) -> None:
        self._by_pid: dict[int, Ending] = {}
        self._by_table: dict[str, dict[TableState | None, dict[int, Ending]]] = {}
        """The same by table and by the state that it is to get: those of one state are alike."""
        self._cut: dict[str, dict[int, Region]] = {}
        """By table, the regions whose assigns have ended: they are picked up where the table stays enabled."""
        self._left: dict[int, set[int]] = {}
        """Regions that procedures of a family have left, by the pid of its root, while that has not ended."""

    def __bool__(self) -> bool:
        return bool(self._by_pid)

    # -- tables

    def begin(self, ending: Ending) -> bool:
        """Takes a procedure that ends the assigns of a table; False where that is known."""
        if ending.pid in self._by_pid:
            return False
        self._by_pid[ending.pid] = ending
        self._by_table.setdefault(ending.table, {}).setdefault(ending.begins, {})[ending.pid] = ending
        return True

    def over(self, pid: int) -> list[Region]:
        """Notes the end of a procedure; returns regions whose assigns have ended because of it."""
        ending = self._by_pid.pop(pid, None)
        if ending is None:
            return []
        of_table = self._by_table[ending.table]
        del of_table[ending.begins][ending.pid]
        if not of_table[ending.begins]:
            del of_table[ending.begins]
        if of_table:
            return []
        del self._by_table[ending.table]
        return list(self._cut.pop(ending.table, {}).values())

    def of(self, table: Table) -> Ending | None:
        """Returns a procedure for which no region of a table is opened; None where there is none.

        One that cannot begin from the state of the table ends nothing.
        """
        for begins, some in self._by_table.get(table.name, _NONE).items():
            if begins is None or change_problem(table.name, table.state, begins) is None:
                return next(iter(some.values()))
        return None

    def cut(self, region: Region) -> None:
        """Notes that the assign of a region has ended for its table's sake."""
        self._cut.setdefault(region.table.name, {})[region.id] = region

    # -- procedures that were ended as they are

    def leaves(self, record: Record, region: int) -> bool:
        """Notes that an ended procedure leaves a region; False where a part of it was ended first, and left that."""
        left = self._left.setdefault(record.root, set())
        first = region not in left
        left.add(region)
        return first

    def ended(self, record: Record) -> None:
        """Notes that a procedure was ended as it is; its ancestors end after it, the root as the last one."""
        if not record.parent:
            self._left.pop(record.pid, None)
