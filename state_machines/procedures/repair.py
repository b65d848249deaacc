"""Decides which records of a store are moved aside where an operator has it repaired."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from state_machines.procedures.faults import LATER, REPAIRABLE, Unusable
from state_machines.procedures.record import Record
from state_machines.procedures.recovery import root_of


def moved_aside(records: Iterable[Record], unusable: Mapping[int, Unusable]) -> list[int]:
    """Returns the pids that no daemon can use, in whole families, so that no parent goes on without a child.

    A record that a newer daemon, or one with its kind, can use stays with its family, and with damaged children of it.
    """
    by_pid = {record.pid: record for record in records}
    families: dict[int, list[int]] = defaultdict(list)
    for pid in by_pid.keys() & unusable.keys():
        families[root_of(pid, by_pid)].append(pid)
    found: set[int] = set()
    missed: set[int] = set()
    for family in families.values():
        faults = {unusable[pid].fault for pid in family}
        torn_for_a_while = any(
            unusable[pid].fault in LATER for one in family for pid in _around(by_pid[one]) if pid in unusable
        )
        if faults & REPAIRABLE and not faults & LATER and not torn_for_a_while:
            found.update(family)
        else:
            missed.update(pid for one in family for pid in _around(by_pid[one]))
    found.update(
        pid for pid, one in unusable.items() if pid not in by_pid and pid not in missed and one.fault in REPAIRABLE
    )
    return sorted(found)


def _around(record: Record) -> tuple[int, ...]:
    """Returns the children and the parent of a record, readable or not."""
    return *record.born, record.parent
