"""Marks of operators: one step sets or removes a mark, so that it has a pid, a reason and a place in the journal."""

from __future__ import annotations

from typing import Final

from controller.procedures.kinds import Effect, Kind, Step
from controller.regions.environment import RegionsEnv
from controller.regions.kinds.messages import Codec, Message
from controller.regions.kinds.servers import stays
from metadata_store.catalog.rows import DropMark, MarkRow, PutMark
from state_machines.procedures.kernel import Change
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.outcome import Done, Failed, Outcome
from state_machines.procedures.record import Record
from state_machines.procedures.transition import Members
from state_machines.regions.marks import Mark, MarkKind

MARK: Final = "mark"
UNMARK: Final = "unmark"
MARKS_MAX: Final = 10_000
"""Marks in the store: ZooKeeper lists them in one response, which has a bound."""
DROPPED_TOGETHER: Final = 100


class MarkTask(Message, frozen=True):
    """A mark that is set or removed, see :class:`state_machines.regions.marks.Mark`."""

    kind: MarkKind
    subject: str
    value: str = ""
    until_ms: int = 0
    why: str = ""


MARK_TASK = Codec(MarkTask)


async def mark(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Stores a mark, and lets procedures look at it; some marks that mean nothing any more go with it."""
    task: MarkTask = MARK_TASK.decode(record.data)
    marks = env.model.marks
    over = marks.over(env.wall_ms(), env.model.ids)[:DROPPED_TOGETHER]
    if len(marks) - len(over) >= MARKS_MAX and marks.get(task.kind, task.subject) is None:
        return Failed(f"there are {len(marks)} marks, which is the most: remove some of 'regent regions marks'")
    found = Mark(task.kind, task.subject, task.value, task.until_ms, record.caller.principal, record.caller.reason)
    row = MarkRow(found.kind, found.subject, found.value, found.until_ms, found.by, found.reason)

    def entered(_: Change) -> None:
        for one in over:
            marks.drop(one.kind, one.subject)
        marks.put(found)

    return Effect(Done(), (*(DropMark(one.kind, one.subject) for one in over), PutMark(row)), entered)


async def unmark(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Removes a mark; what waited because of it goes on.

    The end of a cordon ends that a process is leaving, too, unless a drain of it goes on.
    """
    task: MarkTask = MARK_TASK.decode(record.data)

    def entered(_: Change) -> None:
        env.model.marks.drop(task.kind, task.subject)
        server = env.model.current(task.subject) if task.kind is MarkKind.CORDON else None
        if server is not None:
            stays(env, server.key)
        env.wake_unplaced()

    return Effect(Done(), (DropMark(task.kind, task.subject),), entered)


def _members(record: Record) -> Members:
    """Names the kind of a mark, and its server or region."""
    task: MarkTask = MARK_TASK.decode(record.data)
    if task.kind is MarkKind.PIN:
        return Members(region=int(task.subject), server=task.value, why=task.why, what=task.kind)
    return Members(server=task.subject, why=task.why, what=task.kind)


def _demand(record: Record) -> Demand:
    """Demands all marks: one step may remove marks of other subjects."""
    MARK_TASK.decode(record.data)
    return Demand(Resource(Scope.SERVER, "marks"), exclusive=True)


MARK_SUBJECT: Final[Kind[RegionsEnv]] = Kind(MARK, (Step("store", mark),), _demand, members=_members)
UNMARK_SUBJECT: Final[Kind[RegionsEnv]] = Kind(UNMARK, (Step("remove", unmark),), _demand, members=_members)
