"""Declares the message of repairs of one region: what they are about, and their locks."""

from __future__ import annotations

from controller.regions.procedures import messages
from controller.regions.procedures.messages import Codec, Message
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.record import Record
from state_machines.procedures.transition import Members


class Repair(Message, frozen=True):
    """What an operator has stored again of a region, or forgotten. ``start``, ``end``: the keys that it gets.

    ``table``: of the region; empty where no row says it. ``what``: of a region that is forgotten, see
    ``state_machines.regions.repairs``. ``made``: it is stored. ``leaves_hole``: it is
    forgotten also where no other region has its keys.
    """

    region: int
    table: str = ""
    why: str = ""
    start: bytes = b""
    end: bytes = b""
    what: str = ""
    made: bool = False
    leaves_hole: bool = False


REPAIR = Codec(Repair)


def of_repair(record: Record) -> Members:
    """Names the region of a repair, and its table where that is known."""
    task: Repair = REPAIR.decode(record.data)
    return Members(table=task.table, region=task.region, why=task.why, what=task.what)


def lock_of_repair(record: Record) -> Demand:
    """Demands a region, whatever table it is of, and that the regions of its table stay the same ones."""
    task: Repair = REPAIR.decode(record.data)
    rows = Demand(Resource(Scope.TABLE, f"(rows of region {task.region})"), exclusive=True)
    if not task.table:
        return rows
    also = (rows, messages.shape_of(task.table, exclusive=True))
    return messages.lock_of_region(task.table, task.region)._replace(also=also)
