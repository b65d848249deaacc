"""Checks the leaders that a term elected while brokers obeyed a higher controller epoch, or were drained.

The rows of its journal show them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from state_machines.journal.events import Row

if TYPE_CHECKING:
    from controller.kafka.term.term import Term
    from tests.simulation.kafka.world import SimulatedKafka

VOLUNTARY: Final = ("preferred", "reassign", "reassign_passing")
AT_LAST: Final = ("initial", "offline", "controlled_shutdown")
"""Strategies by which a broker that refuses everything may lead where no other member of the ISR can."""
SPARING: Final = frozenset(
    {*AT_LAST, "initial_passing", "offline_passing", "controlled_shutdown_passing", "drain", "drain_passing"}
)
"""Strategies by which a drained broker leads where no other member of the ISR can."""


class Electing:
    """Checks elections by the moment of their decision.

    I20: an election picks a broker that refuses everything last, and never in an election that is not necessary. I21:
    it picks a drained one only where others refuse everything. ``since``: the time from which the model knew of the
    broker; ``unable``: the last time at which it knew that the broker could not lead.
    """

    def __init__(self, world: SimulatedKafka) -> None:
        self._world = world
        self._since: dict[tuple[int, int], float] = {}
        self._drained: dict[tuple[int, int], float] = {}
        self._unable: dict[tuple[int, int], float] = {}

    def model(self, term: Term) -> None:
        """Reads the model after an event."""
        epoch, cluster, now_s = term.claim.epoch, term.cluster, self._world.loop.now_s
        for since, known in ((self._since, cluster.outranked), (self._drained, cluster.drained)):
            for key in [key for key in since if key[0] == epoch and key[1] not in known]:
                del since[key]
            for broker in known:
                since.setdefault((epoch, broker), now_s)
        for broker in cluster.shutting_down.union(*cluster.failed_dirs.values()):
            self._unable[epoch, broker] = now_s

    def wrong(self, row: Row) -> tuple[str, str] | None:
        """Returns the invariant that a row breaks and how, or None."""
        leader = row.leader1 if row.leader1 is not None else -1
        if row.t_decide is None or leader == row.leader0 or row.strategy is None:
            return None
        others = [b for b in row.isr1 or () if b != leader and self._able(row, b)]
        what = f"lead {row.topic}-{row.partition}"
        if self._judged(self._since, row, leader) and (
            row.strategy in VOLUNTARY or (row.strategy in AT_LAST and others)
        ):
            return "I20", f"{row.strategy} made {leader}, which refuses everything, {what}"
        better = [b for b in others if (row.ctl_epoch, b) not in self._drained and self._could(row, b)]
        if self._judged(self._drained, row, leader) and row.strategy in SPARING and better:
            return "I21", f"{row.strategy} made {leader}, which is drained, {what} instead of {better}"
        return None

    def _judged(self, since: dict[tuple[int, int], float], row: Row, broker: int) -> bool:
        since_s = since.get((row.ctl_epoch, broker))
        return since_s is not None and row.t_decide is not None and row.t_decide > since_s * 1e6

    def _able(self, row: Row, broker: int) -> bool:
        there = broker in (row.replicas or ()) and broker not in (row.absent or ())
        return there and (row.ctl_epoch, broker) not in self._since and not self._world.brokers[broker].foreign

    def _could(self, row: Row, broker: int) -> bool:
        unable_s = self._unable.get((row.ctl_epoch, broker))
        return unable_s is None or (row.t_decide is not None and row.t_decide > unable_s * 1e6)
