"""Says what the numbers count that are results of procedures, and leaves out those that are no news."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller.process.wording import counted
from controller.regions.procedures import adopting, fixing, many, publish, snapshots, stopping, table_work, tables

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


def labelled(kind: str, result: str) -> str:
    """Returns a result with what it counts; other results are sentences already."""
    if not result.isdigit():
        return result
    count = int(result)
    if kind in COUNTED:
        return counted(count, COUNTED[kind])
    if kind in UNDONE and count:
        return f"{counted(count, 'region')} {UNDONE[kind]}"
    if kind in UNDONE:
        return "all regions are open" if kind in tables.OPENS else ""
    return result
