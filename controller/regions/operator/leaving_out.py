"""Leaves out a part of a crashed process's log that no server can split, at an operator's request."""

from __future__ import annotations

from typing import Final, NamedTuple

from controller.http.errors import Invalid, Refused
from controller.regions.operator.items import message_of
from controller.regions.procedures import crash, log_task
from controller.regions.procedures.messages import LOG_TASK, LOST_PARTS, Crash, LogTask
from controller.regions.term import RegionsTerm
from state_machines.procedures.record import Ending, Record
from state_machines.regions.marks import LeftOut, LostPart, LostParts, has_pid, short

ACT: Final = "leave-out"
REGIONS_MAX: Final = 100
"""Ids of regions that the record keeps; the others are counted."""


class Command(NamedTuple):
    """A command to the crash with a pid."""

    pid: int
    command: bytes
    ending: Ending


def done_before(term: RegionsTerm, pid: int) -> Record | None:
    """Returns the crash that goes without the part of an earlier procedure: a repeated command is not judged anew."""
    if pid in term.engine.records:
        return None
    for record in (*term.engine.live(), *term.engine.ended()):
        if record.kind == crash.NAME:
            task: Crash | None = message_of(record)
            if task is not None and has_pid(task.lost, pid):
                return record
    return None


def leaving_out(term: RegionsTerm, pid: int, principal: str, reason: str) -> Command:
    """Returns the command that has the crash go on without the part that a procedure is to split.

    The crash stores the part, the operator, the reason, and the regions that may miss edits.
    """
    record = term.engine.records.get(pid)
    parts = [one.pid for one in term.engine.live() if one.parent == pid and one.kind == log_task.SPLIT_LOG.name]
    if parts:
        remedy = f"'regent regions procedures leave-out {parts[0]}' leaves the part of that one out"
        raise Refused(f"pid {pid} has {len(parts)} parts of a log split, each by a procedure of its own", remedy)
    if record is None or record.kind != log_task.SPLIT_LOG.name:
        kind = "not known, or has ended" if record is None else record.kind
        remedy = "'regent regions procedures list --kind split_log' has those that split a part of a log"
        raise Refused(f"pid {pid} ({kind}) splits no part of a log, and nothing of it can be left out", remedy)
    if not reason:
        raise Invalid("reason: it is empty, and edits may be lost", "say why the part is left out")
    task: LogTask = LOG_TASK.decode(record.data)
    server = term.env.model.servers.get((task.server, task.incarnation))
    regions = sorted(server.regions) if server is not None else []
    name = short(task.part)
    left = LostParts((LeftOut((LostPart(name, pid),), principal, reason),), len(regions), tuple(regions[:REGIONS_MAX]))
    ending = Ending(ACT, principal, f"part {name!r}, {len(regions)} regions: {reason}")
    return Command(record.parent, LOST_PARTS.encode(left), ending)
