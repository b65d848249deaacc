"""Journal of the regions' domain: each event is queued in constant time, in the order in which it happened.

Events of one turn of the loop become one entry. Procedures on regions have lines of their own in the log, unless more
than ``TOGETHER_MAX`` of them begin in one turn; all have rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from controller.journal.region_items import (
    Attached,
    Changed,
    Dispatched,
    Item,
    Made,
    Moved,
    Reported,
    ServerMoved,
    TableMoved,
    rows_in,
)
from controller.journal.region_lines import TOGETHER_MAX
from controller.journal.remembered import Remembered
from controller.journal.term_journal import TermJournal
from regent_agent.protocol import Operation, Result
from state_machines.journal.events import Kind
from state_machines.procedures.record import Record
from state_machines.procedures.transition import Names, Transition
from state_machines.regions.model import Region, Server, Table
from state_machines.regions.states import RegionState, TableState

CLUSTER: Final = "regions"
"""Cluster of the rows: it keeps them apart from those of a Kafka cluster."""
OF_REGIONS: Final = frozenset({"assign", "close", "move", "close_stray"})
"""Kinds of procedures on one region."""
MOVERS: Final = frozenset({"assign", "close"})
"""Those that take it from state to state."""
ONLINE, CRASHED, FENCED, RELEASED, GONE, LEFT = "ONLINE", "CRASHED", "FENCED", "RELEASED", "GONE", "LEFT"
"""States of a process in rows. FENCED: it can write nothing any more; RELEASED: its log is split, too."""
NONE: Final[frozenset[int]] = frozenset()


class RegionsJournal:
    """Records what happens in one term of the domain. ``retains``: the placement returns regions to their servers."""

    def __init__(self, journal: TermJournal, names: Names, *, retains: bool) -> None:
        journal.of_cluster(CLUSTER)
        self._journal = journal
        self._names = Remembered(names)
        self._retains = retains
        self._items: list[Item] = []
        self._rows = 0
        self._begun = 0
        self._over = False
        self._live: dict[int, Record] = {}
        self._quiet: set[int] = set()

    def begin(self, live: Iterable[Record]) -> None:
        """Begins a term with the procedures that go on in it."""
        self._journal.event(Kind.CTL_ELECTED)
        self._live = {one.pid: one for one in live}
        of_regions = [one.pid for one in self._live.values() if one.kind in OF_REGIONS]
        if len(of_regions) > TOGETHER_MAX:
            self._quiet.update(of_regions)

    def end(self, why: str) -> None:
        """Writes the last row of the term; later events have no row."""
        self.flush()
        self._over = True
        self._journal.event(Kind.CTL_RESIGNED, why=why)

    def flush(self) -> None:
        """Passes the events of a turn to the journal."""
        if self._items:
            items, rows = self._items, self._rows
            self._items, self._rows, self._begun = [], 0, 0
            self._journal.regions(items, rows, self._names, retains=self._retains)

    # -- procedures

    def changed(self, moved: Sequence[Transition]) -> None:
        """Takes durable changes of procedures."""
        born = [after for before, after in moved if before is None]
        if born:
            self._enter(born)
        quiet = self._quiet
        self._add(Changed(moved, frozenset([after.pid for _, after in moved if after.pid in quiet]) if quiet else NONE))
        for _, after in moved:
            if after.state.is_final:
                self._live.pop(after.pid, None)
                self._quiet.discard(after.pid)

    def _enter(self, born: Sequence[Record]) -> None:
        """Enters procedures that begin, and decides whether those on regions have lines."""
        self._live.update((one.pid, one) for one in born)
        of_regions = [one for one in born if one.kind in OF_REGIONS]
        self._begun += len(of_regions)
        together = self._begun > TOGETHER_MAX
        self._quiet.update(one.pid for one in of_regions if together or one.parent in self._quiet)

    # -- regions: the observer of the model

    def attached(self, region: Region, pid: int) -> None:
        """Takes a procedure that begins to move a region; in bulk its first transition, which follows, is enough."""
        record = self._live.get(pid)
        if pid not in self._quiet and record is not None and record.kind in MOVERS:
            self._add(Attached(region, pid, record, region.state, region.server))

    def moved(self, region: Region, before: RegionState, had: Server | None) -> None:
        """Takes a transition of a region."""
        pid, state = region.pid, region.state
        token = region.opening if state is RegionState.OPENING else region.token
        item = Moved(
            region, pid, self._live.get(pid), pid in self._quiet, before, state, had, region.server, token,
            region.sequence,
        )  # fmt: skip
        self._add(item)

    def made(self, table: Table, regions: Sequence[Region], pid: int) -> None:
        """Takes new regions of a table."""
        if regions:
            self._add(Made(table, regions, pid))

    def dispatched(self, server: Server, number: int, operations: Sequence[Operation]) -> None:
        """Takes a batch that goes to a server."""
        live, quiet = self._live, self._quiet
        told = [live[one.pid] for one in operations if one.pid in live and one.pid not in quiet]
        self._add(Dispatched(server, number, operations, told))

    def reported(self, server: Server, result: Result) -> None:
        """Takes a result that a server reports for the first time."""
        pid = result.pid
        self._add(Reported(server, result, self._live.get(pid), pid in self._quiet))

    # -- servers and tables

    def server(self, server: Server, change: tuple[str, str], why: str, pid: int = 0, *, troubles: bool = True) -> None:
        """Takes a change of a process, from one state to another. ``pid``: of the procedure of its crash."""
        self._add(ServerMoved(server, *change, len(server.regions), why, pid, troubles))

    def table(self, name: str, before: TableState | None, after: TableState | None, regions: int, pid: int) -> None:
        """Takes a change of a table; without ``before`` it is new, without ``after`` it is gone."""
        self._add(TableMoved(name, before, after, regions, pid))

    def _add(self, item: Item) -> None:
        if self._over:
            return
        if not self._items:
            asyncio.get_running_loop().call_soon(self.flush)
        self._items.append(item)
        self._rows += rows_in(item)
