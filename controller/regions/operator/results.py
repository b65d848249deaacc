"""Turns results of procedures into sentences: names what a number counts, and what a repair did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller.process.wording import counted
from controller.regions.procedures import (
    adopting,
    fixing,
    forgetting,
    many,
    publish,
    servers,
    snapshots,
    stopping,
    table_work,
    tables,
)
from controller.regions.procedures.messages import Crash, TableTask
from controller.regions.procedures.repair import Repair
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.adopted_keys import said

COUNTED: Final[Mapping[str, str]] = {
    table_work.NAME: "region",
    snapshots.MAKE: "region",
    publish.NAME: "server",
    stopping.STOP: "table",
    stopping.START: "table",
}
"""What a result counts, by kind."""
UNDONE: Final[Mapping[str, str]] = {
    **dict.fromkeys((*tables.OPENS, fixing.NAME, adopting.NAME, many.ASSIGN_MANY), "not open"),
    many.CLOSE_MANY: "not closed",
}
"""What regions are that a result counts, by kind: those with which the procedure has not come to its end."""


REST: Final = "lists the faults that remain"


def labelled(record: Record, task: object, result: str) -> str:
    """Returns a result with what it counts; other results are sentences already. ``task``: the record's message."""
    if record.state is State.SUCCESS and not record.bypassed and (mended := _mended(record.kind, task, result)):
        return mended
    if not result.isdigit():
        return result
    count = int(result)
    if record.kind in COUNTED:
        return counted(count, COUNTED[record.kind])
    if record.kind in UNDONE and count:
        return f"{counted(count, 'region')} {UNDONE[record.kind]}"
    if record.kind in UNDONE:
        return "all regions are open" if record.kind in tables.OPENS else ""
    return result


def _mended(kind: str, task: object, result: str) -> str:
    """Returns what a repair has stored or removed, and where to look next; empty where it is none, or was ended."""
    if result and not result.isdigit():
        return ""
    closed = f", {counted(int(result), 'region')} {UNDONE[kind]}" if result.strip("0") and kind in UNDONE else ""
    match kind, task:
        case fixing.NAME, TableTask(table=table, made=0):
            return f"each key of table {table} has a region: nothing was to be mended"
        case fixing.NAME, TableTask(table=table, made=made, first_id=first):
            ids = f"#{first}" + (f" to #{first + made - 1}" if made > 1 else "")
            shown = f"'regent regions list --table {table}' shows them, 'regent regions report --table {table}'"
            return f"{counted(made, 'region')} stored, {ids}{closed}; {shown} {REST}"
        case adopting.NAME, Repair(region=region, table=table) as found:
            keys = said((found.start, found.end))
            shown = f"'regent regions explain {region}' shows where it is, 'regent regions report --table {table}'"
            return f"region {table}#{region} stored with the keys {keys}{closed}; {shown} {REST}"
        case forgetting.NAME, Repair(region=region, table=table):
            of = f" --table {table}" if table else ""
            return f"the catalog has forgotten region {table}#{region}; 'regent regions report{of}' {REST}"
        case servers.FORGET, Crash(server=name, incarnation=last):
            return f"processes of server {name} up to the incarnation {last} may register again"
    return ""
