"""Decides which of the regions that an operator names by their ids are opened or closed, and why others are left out.

A region that is left out never ends the whole: it is counted under its cause, with the first few ids of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from state_machines.regions.changes import awaits_crash
from state_machines.regions.entities import Region
from state_machines.regions.states import FINAL, WANTED, RegionState, ServerState

IDS_MAX: Final = 10_000
"""Regions of one request. Their ids have at most 90 kB as they are stored, a write of a store takes several times that.
"""
SHOWN_MAX: Final = 3
"""Ids that are kept of the regions with one cause."""
S = RegionState


class Cause(StrEnum):
    """Why a region is left out, or is not as it was to be in the end. The value is stored, and told in this order."""

    OPEN = "open"
    CLOSED = "closed"
    GONE = "gone"
    BUSY = "busy"
    CRASH = "crash"
    TABLE = "table"
    FAILED = "failed"
    NOT_YET = "not yet"
    SHARED = "shared"


MET: Final = frozenset({Cause.OPEN, Cause.CLOSED})
"""Causes of regions that are as they are to be already."""
TOLD: Final[Mapping[Cause, tuple[str, str]]] = {
    Cause.OPEN: ("is open already", "are open already"),
    Cause.CLOSED: ("is closed already", "are closed already"),
    Cause.GONE: ("does not exist", "do not exist"),
    Cause.BUSY: ("is moved by another procedure", "are moved by other procedures"),
    Cause.CRASH: ("waits for the crash of its server", "wait for the crash of their server"),
    Cause.TABLE: ("is of a table that is not enabled", "are of tables that are not enabled"),
    Cause.FAILED: ("could not be opened", "could not be opened"),
    Cause.SHARED: ("shares keys with one at a server", "share keys with some at servers"),
    Cause.NOT_YET: ("is not there yet", "are not there yet"),
}
"""What is said of one region, and of several."""


class LeftOut(Struct, frozen=True, array_like=True, gc=False):
    """Regions that are left out for one cause: how many, and the first of them."""

    cause: Cause
    count: int
    first: tuple[int, ...]

    def told(self) -> str:
        """Returns a clause such as "#5, #7, #8 and 41 more are open already"."""
        names = ", ".join(f"#{one}" for one in self.first)
        more = self.count - len(self.first)
        return f"{names}{f' and {more:,} more' if more else ''} {TOLD[self.cause][self.count > 1]}"


def is_of_crash(region: Region) -> bool:
    """Checks whether the crash of its owner sees to a region: no request about it is accepted before.

    One that was open at a process that is fenced, and that a hold keeps, may be moved before the hold ends.
    """
    owner = None if region.server is None else region.server.state
    return owner is ServerState.CRASHED or (owner is ServerState.FENCED and region.state not in FINAL)


def left_out(region: Region | None, *, opens: bool, ends: bool = False) -> Cause | None:
    """Returns why a region is not opened, or not closed (``opens`` False); None where it is.

    ``ends``: a procedure is about to close its table.
    """
    if region is None:
        return Cause.GONE
    if (met := _met(region, opens=opens)) is not None:
        return met
    if region.pid:
        return Cause.BUSY
    if is_of_crash(region):
        return Cause.CRASH
    return Cause.TABLE if opens and (ends or region.table.state not in WANTED) else None


def missed(region: Region | None, *, opens: bool) -> Cause | None:
    """Returns why a region that was to be opened or closed is not so in the end; None where it is."""
    if region is None:
        return Cause.GONE
    if _met(region, opens=opens) is not None:
        return None
    if opens and region.table.state not in WANTED:
        return Cause.TABLE
    return Cause.FAILED if opens and region.state is S.FAILED_OPEN else Cause.NOT_YET


def _met(region: Region, *, opens: bool) -> Cause | None:
    if opens:
        return Cause.OPEN if region.state is S.OPEN and not awaits_crash(region) else None
    return Cause.CLOSED if region.state in FINAL and region.state is not S.OPEN else None


def added(left: tuple[LeftOut, ...], found: Iterable[tuple[Cause, int]]) -> tuple[LeftOut, ...]:
    """Returns what was left out with further regions, in the order of the causes."""
    counts = {one.cause: (one.count, one.first) for one in left}
    for cause, region in found:
        count, first = counts.get(cause, (0, ()))
        counts[cause] = count + 1, first if count >= SHOWN_MAX else (*first, region)
    return tuple(LeftOut(cause, *counts[cause]) for cause in Cause if cause in counts)


def in_words(left: Iterable[LeftOut]) -> str:
    """Returns how many regions are left out, and why; empty where none are."""
    some = tuple(left)
    count = sum(one.count for one in some)
    return f"{count:,} left out: {', '.join(one.told() for one in some)}" if count else ""
