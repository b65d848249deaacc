"""Judges the records of clients' calls.

| I8 | a record names a call that a client made, and is written with or after its effect; a call has one record |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from controller.procedures.recorder import CallKind
from state_machines.procedures.record import Record

if TYPE_CHECKING:
    from tests.simulation.kafka.world import SimulatedKafka

Effect = Callable[[], bool]
"""Whether ZooKeeper has, or had, what a call changes."""
KINDS = frozenset(kind.value for kind in CallKind)


class CallInvariants:
    """Follows every record of a call. That a nonce has one pid is judged with those of plans."""

    def __init__(self, world: SimulatedKafka, fail: Callable[[str, str], None]) -> None:
        self.w = world
        self._fail = fail
        self._effects: dict[str, Effect] = {}
        self._recorded: set[str] = set()

    def made(self, nonce: str, effect: Effect) -> None:
        """Notes a call that a client makes."""
        self._effects[nonce] = effect

    def written(self, record: Record) -> None:
        """Checks a record that was written: those of a multi come behind its other operations."""
        nonce = record.caller.nonce
        effect = self._effects.get(nonce)
        if not record.state.is_final or effect is None:
            self._fail("I8", f"the record of pid {record.pid} is of no call that a client made: {record}")
        elif not effect():
            self._fail("I8", f"pid {record.pid} records {record.result!r}, which was not done")
        self._recorded.add(nonce)

    def succeeded(self, nonce: str) -> None:
        """Checks that a call that changed something has a record, unless its daemon could not write records."""
        daemon = self.w.serving_daemon()
        counted = daemon is None or daemon.daemon is None or daemon.daemon.counters.unrecorded_calls
        if nonce not in self._recorded and not counted:
            self._fail("I8", f"a call succeeded and has no record: nonce {nonce}")
