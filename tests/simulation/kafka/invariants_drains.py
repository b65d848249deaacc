"""Judges drains by their records and by the marks in ZooKeeper, and shutdowns by what leaders request.

| I21 | a drain that ends well leaves its brokers marked; one that is taken back leaves no mark of its own |
| I21 | a leader does not request a follower for the ISR again and again while its broker shuts down |
| I21 | at the end the daemon knows the marks that ZooKeeper has |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from controller.kafka.procedures.drain import drain_of
from metadata_store.codecs.base import MalformedNode
from metadata_store.nodes.cordon_node import PATH, Marks, decode
from state_machines.procedures.record import Record
from state_machines.procedures.states import State

if TYPE_CHECKING:
    from testing.simulated.calls import IsrChange
    from tests.simulation.kafka.world import SimulatedKafka

REFUSED_MAX: Final = 4
"""Requests of one ISR, a second apart, until its partition has another leader epoch: writes of it may fail."""


class DrainInvariants:
    """Follows every record of a drain."""

    def __init__(self, world: SimulatedKafka, fail: Callable[[str, str], None]) -> None:
        self.w = world
        self._fail = fail
        self._refused: Counter[object] = Counter()

    def requested(self, changes: Sequence[IsrChange]) -> None:
        """Checks I21 when leaders request ISRs; one whose own broker shuts down is refused for another reason."""
        term = self.w.serving_term()
        if term is None or not self.w.ibp.alter_partition or not (leaving := term.cluster.shutting_down):
            return
        for change in changes:
            row = term.cluster.find(*change.key)
            if row is None or term.cluster.rows[row].leader in leaving:
                continue
            if leaving.intersection(change.isr).difference(term.cluster.rows[row].isr):
                request = term.claim.epoch, change.key, change.leader_epoch, change.partition_epoch, change.isr
                self._refused[request] += 1
                if self._refused[request] > REFUSED_MAX:
                    self._fail("I21", f"{change.isr} of {change.key} is requested on, and {set(leaving)} shut down")

    def ended(self, record: Record) -> None:
        """Checks I21 when the last write of a drain is applied."""
        marks, brokers = self._marks(), drain_of(record).brokers
        drains = {broker: mark.drain for broker, mark in marks.items() if mark.drain is not None}
        left = [broker for broker, drain in drains.items() if drain.pid == record.pid]
        if record.state is State.ROLLEDBACK and left:
            self._fail("I21", f"drain {record.pid} was taken back and leaves marks of brokers {left}")
        if record.state is State.SUCCESS and (missing := set(brokers) - drains.keys()):
            self._fail("I21", f"drain {record.pid} has ended, and brokers {sorted(missing)} are not marked")

    def unfinished(self) -> Iterator[str]:
        """Yields what the daemon knows of the marks besides ZooKeeper's."""
        term = self.w.serving_term()
        marked = {broker for broker, mark in self._marks().items() if mark.drain is not None}
        if term is not None and term.cluster.drained != marked:
            yield f"the daemon knows {sorted(term.cluster.drained)} as drained, ZooKeeper has {sorted(marked)}"

    def _marks(self) -> Marks:
        node = self.w.ensemble.leader.tree.every().get(PATH)
        if node is None:
            return {}
        found = decode(node.data or b"", node.stat.version)
        assert not isinstance(found, MalformedNode)
        return found.brokers
