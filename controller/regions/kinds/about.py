"""Names the table, the region and the process of a server that a procedure is about, for the journal and the log."""

from __future__ import annotations

from controller.regions.kinds.messages import (
    CRASH,
    LOG_TASK,
    MANY,
    MOVE,
    TABLE_TASK,
    TRANSIT,
    Crash,
    LogTask,
    Many,
    Move,
    TableTask,
    Transit,
)
from state_machines.procedures.record import Record
from state_machines.procedures.transition import Members


def transit(record: Record) -> Members:
    """Names a region and the process that it goes to or leaves; of one that is not chosen yet the wanted name."""
    task: Transit = TRANSIT.decode(record.data)
    return Members((), (), task.table, task.region, task.server or task.to, task.incarnation, task.why)


def move(record: Record) -> Members:
    """Names a region and the server that it is to go to."""
    task: Move = MOVE.decode(record.data)
    return Members(table=task.table, region=task.region, server=task.to, why=task.why)


def many(record: Record) -> Members:
    """Names the table of some regions."""
    task: Many = MANY.decode(record.data)
    return Members(table=task.table, why=task.why)


def process(record: Record) -> Members:
    """Names a process of a server."""
    task: Crash = CRASH.decode(record.data)
    return Members(server=task.server, incarnation=task.incarnation, why=task.why)


def log(record: Record) -> Members:
    """Names the process that works on a log; before one is chosen, the owner of the log."""
    task: LogTask = LOG_TASK.decode(record.data)
    if task.worker:
        return Members(server=task.worker, incarnation=task.worker_incarnation)
    return Members(server=task.server, incarnation=task.incarnation)


def table(record: Record) -> Members:
    """Names a table."""
    task: TableTask = TABLE_TASK.decode(record.data)
    return Members(table=task.table, why=task.why)
