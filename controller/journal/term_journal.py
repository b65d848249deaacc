"""Writes a term's part of the journal: the interface of a domain, which adds entries of its own.

Every call takes constant time and never waits or raises: the writing thread makes, encodes and writes rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from controller.journal.entries import Entry, Single, log_entries
from controller.journal.moment import Head, Moment
from controller.journal.procedure_rows import Procedural, bounded
from state_machines.journal.events import Kind
from state_machines.procedures.record import Caller
from state_machines.procedures.transition import Names, Transition

Sink = Callable[[Entry], None]
"""Takes an entry; must not wait."""

Clock = Callable[[], tuple[int, int]]
"""The wall clock and the monotonic clock, in microseconds."""


def clocks() -> tuple[int, int]:
    """Reads the machine's clocks."""
    return time.time_ns() // 1_000, time.monotonic_ns() // 1_000


class TermJournal:
    """Numbers the rows of one term. Without a sink no row is kept."""

    def __init__(self, sink: Sink | None = None, ctl_id: int = 0, epoch: int = 0, clock: Clock = clocks) -> None:
        self._sink = sink
        self._head = Head("", ctl_id, epoch)
        self._clock = clock
        self._seq = 1
        self._detect_us = 0

    @property
    def kept(self) -> bool:
        """Returns whether a sink keeps the rows."""
        return self._sink is not None

    @property
    def last_seq(self) -> int:
        """Returns the number of the last row; 0 before the first one, and without a sink."""
        return self._seq - 1

    @property
    def cluster_id(self) -> str:
        """Returns the cluster's id; empty where it is not known."""
        return self._head.cluster

    def of_cluster(self, cluster_id: str) -> None:
        """Sets the cluster id of all rows from now on."""
        self._head = Head(cluster_id, self._head.ctl_id, self._head.ctl_epoch)

    def noticed(self, monotonic_s: float) -> None:
        """Sets the time at which the event that is handled from now on was noticed."""
        self._detect_us = int(monotonic_s * 1e6)

    def now_us(self) -> int:
        """Returns the monotonic clock."""
        return self._clock()[1]

    def procedures(self, moved: Sequence[Transition], names: Names, domain: str) -> None:
        """Records durable changes of procedures, and has a line of each logged; without a sink it logs them itself."""
        worker = f"{domain}-{self._head.ctl_epoch}"
        self.add(lambda head, seq, moment: Procedural(head, seq, moment, moved, names, worker))

    def add(self, made: Callable[[Head, int, Moment], Entry]) -> None:
        """Records an entry of a domain, and has its lines logged; without a sink it logs them itself.

        ``made`` gets the head, the number of the first row and the clocks.
        """
        entry = made(self._head, self._seq, Moment(*self._clock()))
        if self._sink is None:
            log_entries([entry])
        else:
            self._put(entry, self._sink)

    def call(self, api: str, caller: Caller, *, partitions: int, elected: int, refused: int) -> None:
        """Records a client's call that is no procedure, and what became of it."""
        names = {"principal": bounded(caller.principal), "client": bounded(caller.client)}
        self.event(Kind.CALL, api=api, partitions=partitions, elected=elected, refused=refused, **names)

    def event(self, kind: Kind, **fields: object) -> None:
        """Records one row; ``fields`` are those of :class:`state_machines.journal.events.Row`."""
        if self._sink is not None:
            detect = {"t_detect": self._detect_us} if self._detect_us else {}
            row = Single(self._head, self._seq, self._moment(), {"kind": kind, **detect, **fields})
            self._put(row, self._sink)

    def _moment(self, decide_us: int = 0) -> Moment:
        return Moment(*self._clock(), self._detect_us, decide_us)

    def _put(self, entry: Entry, sink: Sink) -> None:
        self._seq += len(entry)
        sink(entry)


J = TypeVar("J", bound=TermJournal)


class Journals(Protocol):
    """The journals of a daemon's terms."""

    def term(self, ctl_id: int, epoch: int, of: type[J]) -> J:
        """Creates the part of a term that begins, as the domain of the term writes it."""
