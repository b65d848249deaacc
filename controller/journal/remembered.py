"""Remembers what procedures are about, so that the message of one is decoded once for all of its rows."""

from __future__ import annotations

from typing import Final, NamedTuple

from state_machines.procedures.record import Record
from state_machines.procedures.transition import Members, Names

PIDS_MAX: Final = 50_000
"""Procedures that are remembered, about 250 bytes each."""


class _Known(NamedTuple):
    """A message, and what it says."""

    data: bytes
    members: Members


class Remembered:
    """Names with a memory. One thread uses it at a time."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._known: dict[int, _Known] = {}
        self.step_name = names.step_name

    def lock_names(self, record: Record) -> tuple[str, ...]:
        """Returns the locks of the procedure."""
        return self._names.lock_names(record)

    def members(self, record: Record) -> Members:
        """Returns what the procedure is about."""
        known = self._known.get(record.pid)
        if known is None or known.data != record.data:
            if len(self._known) >= PIDS_MAX:
                self._known.clear()
            known = self._known[record.pid] = _Known(record.data, self._names.members(record))
        return known.members
