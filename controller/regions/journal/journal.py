"""Keeps the journal of the regions' domain: each event is queued in constant time, in the order in which it happened.

Events of one turn of the loop become one entry. Procedures on regions have lines of their own in the log, unless more
than ``TOGETHER_MAX`` of them begin in one turn. Then one row has the begins, the results or the ends of many of one
batch; each transition of a region has a row of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

from controller.journal.term_journal import TermJournal
from controller.regions.journal.items import (
    Attached,
    Changed,
    Discarded,
    Dispatched,
    Forgotten,
    Independent,
    Item,
    Made,
    Moved,
    Reported,
    ReportedTogether,
    ServerMoved,
    TableMoved,
    Together,
    rows_in,
)
from controller.regions.journal.lines import GOOD, TOGETHER_MAX, LoggedRegional
from regent_agent.protocol import Operation, Result
from state_machines.journal.events import Kind
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.procedures.transition import Names, Transition
from state_machines.regions.entities import Region, Server, Table
from state_machines.regions.shapes import ParentRow
from state_machines.regions.states import RegionState, TableState

MESSAGES_MAX: Final = 50_000
"""Messages that are remembered, most of them about 500 bytes each with what they say."""
REMEMBERED_BYTES_MAX: Final = 1_000
"""Bytes of a message that is remembered; few are longer, such as those with the keys of a table."""
T = TypeVar("T")


class Memory(Generic[T]):
    """Remembers what follows from a procedure's kind and message."""

    def __init__(self, find: Callable[[Record], T]) -> None:
        self._find = find
        self._known: dict[tuple[str, bytes], T] = {}

    def of(self, record: Record) -> T:
        """Returns the value for the kind and the message of a record; it is found once."""
        key = record.kind, record.data
        known = self._known.get(key)
        if known is None:
            known = self._find(record)
            if len(record.data) <= REMEMBERED_BYTES_MAX:
                if len(self._known) >= MESSAGES_MAX:
                    self._known.clear()
                self._known[key] = known
        return known


class Remembered:
    """Names with a memory: they depend on a procedure's kind and message alone. One thread uses it at a time."""

    def __init__(self, names: Names) -> None:
        self.step_name = names.step_name
        self.members = Memory(names.members).of
        self.lock_names = Memory(names.lock_names).of


CLUSTER: Final = "regions"
"""Cluster of the rows: it keeps them apart from those of a Kafka cluster."""
OF_REGIONS: Final = frozenset({"assign", "close", "move", "close_stray"})
"""Kinds of procedures on one region."""
BATCHES: Final = frozenset({"assign_many", "close_many"})
"""Kinds whose parts are on regions of one table, and one for each."""
MOVERS: Final = frozenset({"assign", "close"})
"""Those that take it from state to state."""
ONLINE, CRASHED, FENCED, RELEASED, GONE, LEFT = "ONLINE", "CRASHED", "FENCED", "RELEASED", "GONE", "LEFT"
"""States of a process in rows. FENCED: it can write nothing any more; RELEASED: its log, where it has one, is split."""
UNANSWERED_MAX: Final = 1_000
"""Procedures without a response to their last write that the last row of a term names."""
NONE: Final[frozenset[int]] = frozenset()


class RegionsJournal:
    """Records what happens in one term of the domain. ``retains``: the placement returns regions to their servers."""

    def __init__(self, journal: TermJournal, names: Names, *, retains: bool) -> None:
        journal.of_cluster(CLUSTER)
        self._journal = journal
        self._names = Remembered(names)
        self._retains = retains
        self._items: list[Item] = []
        self._begun = 0
        self._over = False
        self._live: dict[int, Record] = {}
        self._quiet: dict[int, int] = {}
        """Procedures without lines, and the batch of each, 0 without."""

    def begin(self, live: Iterable[Record]) -> None:
        """Begins a term with the procedures that go on in it."""
        self._journal.event(Kind.CTL_ELECTED)
        self._live = {one.pid: one for one in live}
        of_regions = [one for one in self._live.values() if one.kind in OF_REGIONS]
        if len(of_regions) > TOGETHER_MAX:
            self._quiet.update((one.pid, self._batch(one.parent)) for one in of_regions)

    def end(self, why: str, unanswered: Sequence[int] = ()) -> None:
        """Writes the last row of the term; later events have no row.

        ``unanswered``: procedures whose last step may be stored, and has no rows.
        """
        self.flush()
        self._over = True
        self._journal.event(Kind.CTL_RESIGNED, why=why, pids=list(unanswered[:UNANSWERED_MAX]) or None)

    def flush(self) -> None:
        """Passes the events of a turn to the journal."""
        if self._items:
            items, self._items, self._begun = self._items, [], 0
            count = sum(map(rows_in, items))
            self._journal.add(
                lambda head, seq, moment: LoggedRegional(
                    head, seq, moment, items, count, self._names, retains=self._retains
                )
            )

    # -- procedures

    def changed(self, moved: Sequence[Transition]) -> None:
        """Takes durable changes of procedures."""
        born = [after for before, after in moved if before is None]
        if born:
            self._enter(born)
        single, together = self._parted(moved) if self._quiet else (moved, ())
        if single:
            quiet = frozenset([after.pid for _, after in single if after.pid in self._quiet]) if self._quiet else NONE
            self._add(Changed(single, quiet))
        for item in together:
            self._add(item)
        for _, after in moved:
            if after.state.is_final:
                self._live.pop(after.pid, None)
                self._quiet.pop(after.pid, None)

    def _parted(self, moved: Sequence[Transition]) -> tuple[list[Transition], list[Together]]:
        """Returns changes, and for begins and plain ends of procedures of a batch without lines one item for many."""
        single: list[Transition] = []
        groups: dict[tuple[int, State | None], list[Record]] = {}
        for one in moved:
            before, after = one
            batch = self._quiet.get(after.pid)
            if batch and (before is None or (after.state is State.SUCCESS and not after.result)):
                groups.setdefault((batch, None if before is None else before.state), []).append(after)
            else:
                single.append(one)
        together: list[Together] = []
        for (_, state), records in groups.items():
            took_ms = max([one.updated_ms - one.submitted_ms for one in records])
            together.append(Together([one.pid for one in records], state, records[-1], max(0, took_ms)))
        return single, together

    def _enter(self, born: Sequence[Record]) -> None:
        """Enters procedures that begin, and decides whether those on regions have lines."""
        self._live.update({one.pid: one for one in born})
        of_regions = [one for one in born if one.kind in OF_REGIONS]
        self._begun += len(of_regions)
        together = self._begun > TOGETHER_MAX
        batches = {parent: self._batch(parent) for parent in {one.parent for one in of_regions}}
        quiet = [one for one in of_regions if together or one.parent in self._quiet]
        self._quiet.update({one.pid: batches[one.parent] for one in quiet})

    def _batch(self, pid: int) -> int:
        """Returns the pid of a parent that is a batch, whose procedures are of one kind and one table; else 0."""
        parent = self._live.get(pid)
        return pid if parent is not None and parent.kind in BATCHES else 0

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

    def made(self, table: Table, regions: Sequence[Region], pid: int, sources: int = 0) -> None:
        """Takes new regions of a table, which are in one state. ``sources``: in so many others their data begins."""
        if regions:
            self._add(Made(table, regions, pid, regions[0].state, sources))

    def independent(self, region: Region, server: Server, *, answered: bool = True) -> None:
        """Takes a region that has data of its own, by the word of its server.

        ``answered``: whether the write of that had a response; without one the term is over.
        """
        self._add(Independent(region, server, answered))

    def discarded(self, parent: ParentRow, pid: int) -> None:
        """Takes a region that was split, merged or truncated, and whose data is discarded."""
        self._add(Discarded(parent, pid, self._live.get(pid)))

    def forgotten(self, region: int, table: str, state: str, pid: int) -> None:
        """Takes a region whose rows were removed; its own data stays. ``state``: its last one, empty without a row."""
        self._add(Forgotten(region, table, state, pid, self._live.get(pid)))

    def dispatched(self, server: Server, number: int, operations: Sequence[Operation]) -> None:
        """Takes a batch that goes to a server."""
        live, quiet = self._live, self._quiet
        told = [live[one.pid] for one in operations if one.pid in live and one.pid not in quiet]
        self._add(Dispatched(server, number, operations, told))

    def reported(self, server: Server, results: Iterable[Result]) -> None:
        """Takes results that a server reports for the first time; those of a batch without lines together."""
        alike: dict[tuple[int, str], list[int]] = {}
        for one in results:
            pid = one.pid
            batch = self._quiet.get(pid)
            if batch and one.outcome in GOOD and not one.text:
                alike.setdefault((batch, one.outcome), []).append(pid)
            else:
                self._add(Reported(server, one, self._live.get(pid), batch is not None))
        for (_, outcome), pids in alike.items():
            self._add(ReportedTogether(server, outcome, pids, self._live[pids[-1]]))

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
