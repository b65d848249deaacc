"""Decides whether regions are balanced now, and whether one move of a stored plan is still to be made.

A plan is a wish: by the time of a move the region may be elsewhere, and its target gone. So each move is judged again.
"""

from __future__ import annotations

from collections.abc import Container
from enum import StrEnum
from typing import Final

from msgspec import Struct

from state_machines.regions.entities import Region
from state_machines.regions.states import WANTED, RegionState

SERVERS_MIN: Final = 2


class Bar(StrEnum):
    """What keeps a balance from beginning. The first one that holds is named."""

    OFF = "off"
    LEVEL = "level"
    RUNNING = "running"
    CRASH = "crash"
    UNHEARD = "unheard"
    SILENT = "silent"
    SERVERS = "servers"
    TRANSIT = "transit"


class Seen(Struct, frozen=True, gc=False):
    """The domain as a balance judges it. ``running``: pid of another balance, 0 without; the others are numbers.

    ``unheard``: servers that have not registered at this daemon, or whose list of regions is not compared yet.
    ``silent``: those that have not polled for half a lease.
    ``transit``: regions that are in transition, or that procedures have. ``level``: the store's is too low.
    """

    off: bool = False
    running: int = 0
    crashed: int = 0
    unheard: int = 0
    silent: int = 0
    targets: int = 0
    transit: int = 0
    level: bool = False


def bar_of(seen: Seen, *, force: bool = False) -> Bar | None:
    """Returns what keeps a balance from beginning; None where it may. ``force``: regions may be in transition."""
    holds = {
        Bar.OFF: seen.off,
        Bar.LEVEL: seen.level,
        Bar.RUNNING: seen.running != 0,
        Bar.CRASH: seen.crashed > 0,
        Bar.UNHEARD: seen.unheard > 0,
        Bar.SILENT: seen.silent > 0,
        Bar.SERVERS: seen.targets < SERVERS_MIN,
        Bar.TRANSIT: seen.transit > 0 and not force,
    }
    return next((bar for bar, holding in holds.items() if holding), None)


class Skip(StrEnum):
    """Why a move of a plan is not made."""

    GONE = "gone"
    CLOSED = "not open"
    ELSEWHERE = "elsewhere"
    BUSY = "busy"
    CLAIMED = "claimed"
    PINNED = "pinned"
    RESTS = "rests"
    TARGET = "target"
    FAILS = "fails"


SKIPPED: Final[dict[Skip, str]] = {
    Skip.GONE: "the region is gone",
    Skip.CLOSED: "the region is not open, or is not to be",
    Skip.ELSEWHERE: "the region is not where the plan found it",
    Skip.BUSY: "a procedure has the region",
    Skip.CLAIMED: "another server may have the region",
    Skip.PINNED: "the region is pinned",
    Skip.RESTS: "the region rests after a move",
    Skip.TARGET: "its new server is offline, cordoned, leaving, or unable to open it",
    Skip.FAILS: "its new server got none of the regions that were moved to it before",
}
"""Each cause in words of operators."""


def skip_of(
    region: Region | None,
    source: str,
    to: str,
    targets: Container[str],
    *,
    claimed: bool,
    pinned: bool,
    rests: bool,
    fails: bool,
) -> Skip | None:
    """Returns why a move is not made; None where it is. ``targets``: names of servers that may get the region.

    ``claimed``: another server may have the region, so it would be closed, and could not be opened yet. ``fails``: its
    new server did not open what was moved to it before.
    """
    if region is None:
        return Skip.GONE
    if region.server is None or region.server.name != source:
        return Skip.ELSEWHERE
    if region.pid:
        return Skip.BUSY
    if region.state is not RegionState.OPEN or region.table.state not in WANTED:
        return Skip.CLOSED
    if claimed:
        return Skip.CLAIMED
    if pinned:
        return Skip.PINNED
    if rests:
        return Skip.RESTS
    if to not in targets:
        return Skip.TARGET
    return Skip.FAILS if fails else None
