"""Names what a procedure is about, for the journal and the log, and the locks that it takes for that.

Locks form a tree: cluster -> namespace -> table -> region, and servers beside namespaces.
"""

from __future__ import annotations

from functools import lru_cache

from controller.regions.dispatcher import Key
from controller.regions.procedures.messages import (
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
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.record import Record
from state_machines.procedures.transition import Members
from state_machines.regions.model import namespace_of


def of_transit(record: Record) -> Members:
    """Names a region and the process that it goes to or leaves; of one that is not chosen yet the wanted name."""
    task: Transit = TRANSIT.decode(record.data)
    return Members((), (), task.table, task.region, task.server or task.to, task.incarnation, task.why)


def of_move(record: Record) -> Members:
    """Names a region and the server that it is to go to."""
    task: Move = MOVE.decode(record.data)
    return Members(table=task.table, region=task.region, server=task.to, why=task.why)


def of_many(record: Record) -> Members:
    """Names the table of some regions."""
    task: Many = MANY.decode(record.data)
    return Members(table=task.table, why=task.why)


def of_process(record: Record) -> Members:
    """Names a process of a server."""
    task: Crash = CRASH.decode(record.data)
    return Members(server=task.server, incarnation=task.incarnation, why=task.why)


def of_log(record: Record) -> Members:
    """Names the process that works on a log; before one is chosen, the owner of the log."""
    task: LogTask = LOG_TASK.decode(record.data)
    if task.worker:
        return Members(server=task.worker, incarnation=task.worker_incarnation)
    return Members(server=task.server, incarnation=task.incarnation)


def of_table(record: Record) -> Members:
    """Names a table."""
    task: TableTask = TABLE_TASK.decode(record.data)
    return Members(table=task.table, why=task.why)


@lru_cache(maxsize=10_000)
def resource_of(name: str) -> Resource:
    """Returns the queue of a table."""
    return Resource(Scope.TABLE, name, namespace_of(name))


def lock_of_region(table_name: str, id_: int) -> Demand:
    """Demands a region: it alone, beside others of its table."""
    return Demand(resource_of(table_name), exclusive=False, parts=(id_,))


def share_of_table(table_name: str) -> Demand:
    """Demands that no change of the table is under way."""
    return Demand(resource_of(table_name), exclusive=False)


def lock_of_table(table_name: str) -> Demand:
    """Demands a table and all its regions."""
    return Demand(resource_of(table_name), exclusive=True)


def lock_of_server(key: Key) -> Demand:
    """Demands one process of a server."""
    return Demand(Resource(Scope.SERVER, f"{key[0]},{key[1]}"), exclusive=True)


def lock_of_namespace(name: str) -> Demand:
    """Demands a namespace and all its tables."""
    return Demand(Resource(Scope.NAMESPACE, name), exclusive=True)
