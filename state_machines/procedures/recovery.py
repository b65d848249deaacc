"""Finds out from the records of a store how its procedures go on, and which records cannot be used.

A record that cannot be used takes its whole family along: it is reported and left as it is, never dropped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from state_machines.procedures.faults import LATER, Fault, Unusable
from state_machines.procedures.record import VERSION, Record, family
from state_machines.procedures.states import State


class Loaded(NamedTuple):
    """How procedures go on. Each is in the order in which the scheduler takes it.

    ``records``: of sound families. ``locked``: pids that held locks, parents first. ``ready``: those that run, failed
    ones first. ``later``: those that wait for their deadline, and that no operator has ended. ``unusable``: all others,
    the unreadable ones included.
    """

    records: Mapping[int, Record]
    locked: tuple[int, ...]
    ready: tuple[int, ...]
    later: tuple[int, ...]
    unusable: Mapping[int, Unusable]


def load(
    records: Iterable[Record], unfit: Callable[[Record], str | None], unreadable: Mapping[int, Unusable] | None = None
) -> Loaded:
    """Judges the records of a store. ``unfit``: returns why this daemon cannot run a record by itself.

    ``unreadable``: what is known of the records that could not be decoded.
    """
    damaged = unreadable or {}
    by_pid = {record.pid: record for record in family(records)}
    why = {pid: fault for pid, record in by_pid.items() if (fault := _fault(record, by_pid, unfit, damaged))}
    roots = {pid: root_of(pid, by_pid) for pid in by_pid} if why else {}
    bad_roots = {roots[pid]: pid for pid in sorted(why, reverse=True)}
    unusable = {
        pid: why.get(pid) or Unusable(Fault.FAMILY, f"pid {bad_roots[roots[pid]]} of its family cannot be used")
        for pid in sorted(roots)
        if roots[pid] in bad_roots
    }
    sound = {pid: record for pid, record in sorted(by_pid.items()) if pid not in unusable}
    return _order(sound, {**unusable, **damaged})


def root_of(pid: int, records: Mapping[int, Record]) -> int:
    """Follows parents to the first one, also where ancestors are wrong or parents form a circle."""
    passed = {pid}
    while (record := records.get(pid)) is not None and record.parent and record.parent not in passed:
        pid = record.parent
        passed.add(pid)
    return min(passed) if record is not None and record.parent else pid


def _order(sound: Mapping[int, Record], unusable: Mapping[int, Unusable]) -> Loaded:
    children: dict[int, int] = defaultdict(int)
    for record in sound.values():
        children[record.parent] += 1
    failed: list[int] = []
    ready: list[int] = []
    later: list[int] = []
    for pid, record in sound.items():
        if record.state.is_final or children[pid]:
            continue
        root = sound[record.root]
        waits = record.deadline_ms > 0 and not (record.bypassed or root.aborted)
        if root.state is State.FAILED or record.state is State.FAILED:
            (later if waits and record.state is State.FAILED else failed).append(pid)
        elif waits and record.state is State.WAITING_TIMEOUT:
            later.append(pid)
        else:
            ready.append(pid)
    locked = [pid for pid, record in sound.items() if record.locked and not record.state.is_final]
    locked.sort(key=lambda pid: (len(sound[pid].ancestors), pid))
    return Loaded(sound, tuple(locked), (*failed, *ready), tuple(later), unusable)


def _fault(
    record: Record,
    records: Mapping[int, Record],
    unfit: Callable[[Record], str | None],
    damaged: Mapping[int, Unusable],
) -> Unusable | None:
    if record.version > VERSION:
        return Unusable(
            Fault.NEWER, f"format {record.version} is newer than this daemon's ({VERSION}): upgrade the daemon"
        )
    if why := unfit(record):
        return Unusable(Fault.UNKNOWN_KIND, why)
    for lost in record.born:
        if lost in damaged:
            return _torn(Fault.HOLE, f"pid {lost}, its child, cannot be used", damaged[lost])
    if record.parent and record.parent in damaged:
        return _torn(Fault.ORPHAN, f"its parent, pid {record.parent}, cannot be used", damaged[record.parent])
    fault = _misplaced(record, records)
    return None if fault is None else Unusable(*fault)


def _torn(fault: Fault, what: str, cause: Unusable) -> Unusable:
    """Returns the fault of a record whose family is incomplete; for a while where another daemon can read the rest."""
    return Unusable(Fault.FAMILY if cause.fault in LATER else fault, f"{what}: {cause.why}")


def _misplaced(record: Record, records: Mapping[int, Record]) -> tuple[Fault, str] | None:
    if not record.parent:
        return (Fault.OUT_OF_ORDER, "it names ancestors and no parent") if record.ancestors else None
    parent = records.get(record.parent)
    if parent is None:
        return Fault.ORPHAN, f"its parent, pid {record.parent}, is missing"
    if record.ancestors != (parent.pid, *parent.ancestors):
        return Fault.OUT_OF_ORDER, f"its ancestors {record.ancestors} are not those of its parent, pid {parent.pid}"
    if parent.state.is_final:
        return Fault.OUT_OF_ORDER, f"its parent, pid {parent.pid}, has ended"
    if record.state.is_final:
        return Fault.OUT_OF_ORDER, "a child that has ended is not kept"
    return None
