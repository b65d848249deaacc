"""Decides how a stored procedure ends where no daemon can run: the next daemon that loads it ends it as it is."""

from __future__ import annotations

from collections.abc import Iterable

from state_machines.procedures.kernel import Procedures
from state_machines.procedures.record import Ending, Record


class NotEnded(Exception):
    """A procedure cannot be ended; the text says why, and what can."""


def bypassed(records: Iterable[Record], pid: int, ending: Ending, now_ms: int) -> tuple[Record, ...]:
    """Returns the records of a procedure and its ancestors after a request to end it as it is.

    Raises :class:`NotEnded`.
    """
    found = {record.pid: record for record in records}
    if pid not in found:
        raise NotEnded(f"pid {pid} has no record that can be read here")
    lost = [one for one in found[pid].ancestors if one not in found]
    if lost:
        raise NotEnded(f"pid {pid}: its ancestor, pid {lost[0]}, cannot be read; a repair moves its family aside")
    procedures = Procedures(lambda _: None)
    procedures.records = found
    for record in found.values():
        if record.parent:
            procedures.children.setdefault(record.parent, set()).add(record.pid)
    change = procedures.bypassed(pid, now_ms, ending)
    if change is None:
        parts = sorted(procedures.children.get(pid, ()))
        raise NotEnded(f"pid {pid} has parts that go on: end pid {parts[0]} first" if parts else f"pid {pid} has ended")
    return change.puts
