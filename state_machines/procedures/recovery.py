"""Finds out from records how procedures go on, which records cannot be used, and what a repair moves aside.

A record that cannot be used takes its whole family along: it is reported and left as it is, never dropped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from state_machines.portions import Portions, at_once, portions, weighed
from state_machines.procedures.kernel import Procedures
from state_machines.procedures.record import (
    LATER,
    REPAIRABLE,
    VERSION,
    Ending,
    Fault,
    Record,
    Unusable,
    called,
    callers_of,
)
from state_machines.procedures.states import State

T = TypeVar("T")

RECORDS_TOGETHER: Final = 1_000
"""Records of a portion: up to some 10 ms of work."""
MESSAGE_BYTES_TOGETHER: Final = 128 * 1024
"""Bytes of their messages, which are decoded for the locks: up to some 5 ms of work."""


class Loaded(NamedTuple):
    """How procedures go on. Each is in the order in which the scheduler takes it.

    ``records``: of sound families. ``locked``: pids that held locks, parents first, new children, which may wait for
    theirs, last. ``ready``: those that run, failed ones first. ``later``: those that wait for their deadline, and that
    no operator has ended. ``unusable``: all others, the unreadable ones included.
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
    return at_once(judging(list(records), unfit, unreadable or {}))


def judging(
    records: Sequence[Record], unfit: Callable[[Record], str | None], damaged: Mapping[int, Unusable]
) -> Portions[Loaded]:
    """Judges records like :func:`load`, and yields after each portion: the caller may have other work."""
    callers = callers_of(records)
    by_pid: dict[int, Record] = {}
    for some in together(records):
        by_pid.update((record.pid, called(record, callers)) for record in some)
        yield
    why: dict[int, Unusable] = {}
    for some in records_together(records):
        why.update((one.pid, fault) for one in some if (fault := _fault(by_pid[one.pid], by_pid, unfit, damaged)))
        yield
    roots = {pid: root_of(pid, by_pid) for pid in by_pid} if why else {}
    bad_roots = {roots[pid]: pid for pid in sorted(why, reverse=True)}
    unusable = {
        pid: why.get(pid) or Unusable(Fault.FAMILY, f"pid {bad_roots[roots[pid]]} of its family cannot be used")
        for pid in sorted(roots)
        if roots[pid] in bad_roots
    }
    sound = {pid: by_pid[pid] for pid in sorted(by_pid) if pid not in unusable}
    return (yield from _ordering(sound, {**unusable, **damaged}))


def together(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yields records, or pids, in order, at most ``RECORDS_TOGETHER`` at a time."""
    return portions(items, RECORDS_TOGETHER)


def records_together(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Yields records like :func:`together`, and fewer where their messages are large: a plan takes milliseconds."""
    return weighed(records, lambda one: len(one.data), items_max=RECORDS_TOGETHER, weight_max=MESSAGE_BYTES_TOGETHER)


def root_of(pid: int, records: Mapping[int, Record]) -> int:
    """Follows parents to the first one, also where ancestors are wrong or parents form a circle."""
    passed = {pid}
    while (record := records.get(pid)) is not None and record.parent and record.parent not in passed:
        pid = record.parent
        passed.add(pid)
    return min(passed) if record is not None and record.parent else pid


def _ordering(sound: Mapping[int, Record], unusable: Mapping[int, Unusable]) -> Portions[Loaded]:
    children: dict[int, int] = defaultdict(int)
    for record in sound.values():
        children[record.parent] += 1
    failed: list[int] = []
    ready: list[int] = []
    later: list[int] = []
    locked: list[int] = []
    for some in together(tuple(sound.values())):
        for record in some:
            if record.state.is_final:
                continue
            if record.locked:
                locked.append(record.pid)
            if children[record.pid]:
                continue
            root = sound[record.root]
            waits = record.deadline_ms > 0 and not (record.bypassed or root.aborted)
            if root.state is State.FAILED or record.state is State.FAILED:
                (later if waits and record.state is State.FAILED else failed).append(record.pid)
            elif waits and record.state is State.WAITING_TIMEOUT:
                later.append(record.pid)
            else:
                ready.append(record.pid)
        yield
    locked.sort(key=lambda pid: (sound[pid].is_new, len(sound[pid].ancestors), pid))
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
    for members in families.values():
        faults = {unusable[pid].fault for pid in members}
        torn_for_a_while = any(
            unusable[pid].fault in LATER for one in members for pid in _around(by_pid[one]) if pid in unusable
        )
        if faults & REPAIRABLE and not faults & LATER and not torn_for_a_while:
            found.update(members)
        else:
            missed.update(pid for one in members for pid in _around(by_pid[one]))
    found.update(
        pid for pid, one in unusable.items() if pid not in by_pid and pid not in missed and one.fault in REPAIRABLE
    )
    return sorted(found)


def _around(record: Record) -> tuple[int, ...]:
    """Returns the children and the parent of a record, readable or not."""
    return *record.born, record.parent


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
