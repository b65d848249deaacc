"""Remembers what came to nothing: attempts that failed, opens given up, and assigns that other procedures end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from state_machines.procedures.record import Record
from state_machines.regions.changes import change_problem
from state_machines.regions.entities import Region, Table
from state_machines.regions.states import TableState

KEPT_MAX: Final = 10_000
"""Causes of each kind that are kept; the oldest go first."""
AVOIDED_MS: Final = 600_000
"""Time for which a region is not sent to such a server, unless an operator names it, or no other one is there."""
AVOIDED_MAX: Final = 10_000
"""Regions that are remembered: the oldest ones are forgotten first."""
_NONE: Final[dict[TableState | None, dict[int, Ending]]] = {}


class Cause(NamedTuple):
    """Why an attempt failed, and on which region."""

    region: int
    text: str


class Causes:
    """Remembers for operators why the latest attempt on a region failed: records of procedures do not have all of it.

    Causes of attempts are kept by the procedure that goes on, those of regions that were given up by the region.
    """

    def __init__(self) -> None:
        self._attempts: dict[int, Cause] = {}
        self._given_up: dict[int, str] = {}

    def noted(self, pid: int, region: int, text: str) -> None:
        """Notes why the latest attempt of a procedure failed."""
        self._attempts.pop(pid, None)
        self._attempts[pid] = Cause(region, text)
        if len(self._attempts) > KEPT_MAX:
            del self._attempts[next(iter(self._attempts))]

    def over(self, pids: Iterable[int]) -> None:
        """Forgets the causes of procedures that have ended."""
        if self._attempts:
            for pid in pids:
                self._attempts.pop(pid, None)

    def given_up(self, region: int, text: str) -> None:
        """Notes why no server could open a region."""
        self._given_up.pop(region, None)
        self._given_up[region] = text
        if len(self._given_up) > KEPT_MAX:
            del self._given_up[next(iter(self._given_up))]

    def opened(self, region: int) -> None:
        """Forgets why a region could not be opened."""
        self._given_up.pop(region, None)

    def of(self, pid: int) -> str:
        """Returns why the latest attempt of a procedure failed; empty where none did, or it is not known."""
        found = self._attempts.get(pid)
        return "" if found is None else found.text

    def of_region(self, region: int) -> str:
        """Returns why no server could open a region, as far as this term knows."""
        return self._given_up.get(region, "")

    def items(self) -> Iterator[tuple[int, Cause]]:
        """Yields the causes with the pids of procedures that go on, the latest first."""
        return reversed(self._attempts.items())

    def latest(self) -> Iterator[Cause]:
        """Yields the causes of procedures that go on, the latest first."""
        return reversed(self._attempts.values())


class GivenUp:
    """Remembers the servers at which operators have given opens up: the next open of the region goes to another one.

    Times are the loop's. A failover forgets them.
    """

    def __init__(self) -> None:
        self._servers: dict[int, tuple[str, int]] = {}
        """In the order of the times."""

    def noted(self, region: int, server: str, now_ms: int) -> None:
        """Notes that an operator has given up the open of a region at a server."""
        self._servers.pop(region, None)
        self._servers[region] = server, now_ms + AVOIDED_MS
        if len(self._servers) > AVOIDED_MAX:
            del self._servers[next(iter(self._servers))]

    def opened(self, region: int) -> None:
        """Forgets a region that a server has opened since."""
        self._servers.pop(region, None)

    def of(self, region: int, now_ms: int) -> str:
        """Returns the name of the server that a region is not sent to; empty without one."""
        server, until_ms = self._servers.get(region, ("", 0))
        return server if now_ms < until_ms else ""

    def __bool__(self) -> bool:
        return bool(self._servers)


class Left(NamedTuple):
    """A region that no procedure moves. ``pid``: of the one that moved it, 0 where a failover has found it.

    ``given_up``: an operator has ended the procedure that was to open it. ``undone``: the procedure was undone;
    ``to``: name of the server that had the region before.
    """

    region: Region
    pid: int = 0
    given_up: bool = False
    undone: bool = False
    to: str = ""


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
