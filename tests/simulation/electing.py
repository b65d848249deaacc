"""Checks the leaders that a term elected while brokers obeyed a higher controller epoch, from its journal's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from state_machines.journal.events import Row

if TYPE_CHECKING:
    from controller.term.term import Term
    from tests.simulation.world import World

VOLUNTARY: Final = ("preferred", "reassign", "reassign_passing")
AT_LAST: Final = ("initial", "offline", "controlled_shutdown")
"""Strategies by which a broker that refuses everything may lead where no other member of the ISR can."""


class Electing:
    """Checks I20: an election picks such a broker last, and never in an election that is not necessary.

    A row is judged by the moment of its decision: ``since`` is the time from which the model knew of the broker.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._since: dict[tuple[int, int], float] = {}

    def model(self, term: Term) -> None:
        """Reads the model after an event."""
        epoch, known = term.claim.epoch, term.cluster.outranked
        for key in [key for key in self._since if key[0] == epoch and key[1] not in known]:
            del self._since[key]
        for broker in known:
            self._since.setdefault((epoch, broker), self._world.loop.now_s)

    def wrong(self, row: Row) -> str | None:
        """Returns the fault that a row shows, or None."""
        since_s = self._since.get((row.ctl_epoch, row.leader1 if row.leader1 is not None else -1))
        if since_s is None or row.t_decide is None or row.t_decide <= since_s * 1e6 or row.leader1 == row.leader0:
            return None
        others = [b for b in row.isr1 or () if self._able(row, b)]
        if row.strategy in VOLUNTARY or (row.strategy in AT_LAST and others):
            return f"{row.strategy} made {row.leader1}, which refuses everything, lead {row.topic}-{row.partition}"
        return None

    def _able(self, row: Row, broker: int) -> bool:
        there = broker in (row.replicas or ()) and broker not in (row.absent or ())
        return there and (row.ctl_epoch, broker) not in self._since and not self._world.brokers[broker].foreign
