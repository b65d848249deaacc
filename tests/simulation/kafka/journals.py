"""Judges every row of the daemons' journals as it is made, and its number within the term."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.journal.entries import Entry
from controller.journal.journal import J
from state_machines.journal.audit import judge
from state_machines.journal.events import Kind
from tests.kit.simulation.seeds import Violation

if TYPE_CHECKING:
    from tests.simulation.kafka.world import SimulatedKafka


class JudgedJournal:
    """Judges a daemon's journal, on the simulation's clock.

    Rows of partitions that began with content of a topic removed by hand are not judged: the journal records them as
    they are.
    """

    def __init__(self, world: SimulatedKafka) -> None:
        self._world = world
        self._next: dict[int, int] = {}
        self.rows = 0

    def term(self, ctl_id: int, epoch: int, of: type[J]) -> J:
        return of(self._put, ctl_id, epoch, self._clock)

    def _clock(self) -> tuple[int, int]:
        now_us = int(self._world.loop.now_s * 1e6)
        return now_us, now_us

    def _put(self, entry: Entry) -> None:
        rows = list(entry.rows())
        epoch, seq = entry.head.ctl_epoch, entry.seq
        if [row.seq for row in rows] != list(range(self._next.get(epoch, 1), seq + len(entry))):
            self._world.violated(Violation("journal", f"rows {seq} to {seq + len(entry) - 1} of epoch {epoch}"))
        self._next[epoch] = seq + len(entry)
        self.rows += len(rows)
        if self._world.recorded is not None:
            self._world.recorded += rows
        for row in rows:
            if row.kind is Kind.CTL_RESIGNED:
                self._world.invariants.resigned(epoch, row.why or "")
            if (wrong := self._world.invariants.electing.wrong(row)) is not None:
                self._world.violated(Violation(*wrong))
        spoilt = self._world.invariants.history.spoilt
        for found in judge(row for row in rows if (row.topic, row.partition) not in spoilt):
            self._world.violated(Violation(found.invariant, str(found)))
