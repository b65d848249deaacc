"""Finds the procedures that hold the lock for which another one waits, and says so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from controller.procedures.engine import Engine
from controller.procedures.running import LockItem
from controller.process.wording import named
from controller.regions.environment import RegionsEnv
from controller.regions.operator.items import message_of
from controller.regions.procedures.messages import TableTask
from state_machines.procedures.record import Record

SHOWN_MAX: Final = 3
"""Procedures with the lock that one sentence names."""


def holders(record: Record, locks: Sequence[LockItem], engine: Engine[RegionsEnv]) -> list[int]:
    """Returns the pids that hold what a procedure waits for; without one, those that wait for it with an earlier turn.

    ``locks``: of the engine, by pid. Parts of a holder are left out. A lock above, of a namespace, is not looked at.
    """
    found: set[int] = set()
    family = {record.pid, *record.ancestors}
    for mine in (one for one in locks if one.pid == record.pid and one.waiting):
        others = [one for one in locks if one.resource == mine.resource and one.pid not in family]
        others = [one for one in others if one.pid in engine.records and _excludes(mine, one)]
        held = {one.pid for one in others if not one.waiting}
        found |= held or {one.pid for one in others if one.pid < mine.pid}
    return sorted(pid for pid in found if found.isdisjoint(engine.records[pid].ancestors))


def _excludes(one: LockItem, other: LockItem) -> bool:
    return one.exclusive or other.exclusive or not set(one.parts).isdisjoint(other.parts)


def waits_behind(record: Record, locks: Sequence[LockItem], engine: Engine[RegionsEnv]) -> str:
    """Says that a procedure waits for a lock, and which ones hold it; empty where it does not."""
    found = holders(record, locks, engine)
    if not found:
        return ""
    more = f" and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
    what = "procedure" if len(found) == 1 else "procedures"
    names = named(f"{pid} ({engine.records[pid].kind})" for pid in found[:SHOWN_MAX])
    return f"it waits for the lock of {what} {names}{more}"


def changing(table: str, engine: Engine[RegionsEnv]) -> Iterator[Record]:
    """Yields the changes of a table that go on, those that wait among them."""
    for record in engine.live():
        task = message_of(record)
        if isinstance(task, TableTask) and task.table == table:
            yield record
