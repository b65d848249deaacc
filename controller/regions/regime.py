"""The lease and the fence under which servers serve: stored, because servers outlive the daemon that told them.

A daemon with other settings than the one before must not believe a server dead while that serves on under its former
lease. Until each server has registered and polled, the longer lease counts, and both fences.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from metadata_store.catalog.rows import MarkRow, PutMark

LEASE: Final = "lease"
LOG: Final = "log"
COMMAND: Final = "command"
FENCES: Final = (LEASE, LOG, COMMAND)
BOTH: Final = "both"
"""Lease and log, in catalogs of daemons that had no other fence."""
KIND: Final = "regime"
SUBJECT: Final = "domain"


class Regime(NamedTuple):
    """A lease in milliseconds, and a fence: one of FENCES, or several with a plus between them."""

    lease_ms: int
    fence: str

    def united(self, other: Regime) -> Regime:
        """Returns what is safe for servers of either."""
        either = fences_in(self.fence) | fences_in(other.fence)
        return Regime(max(self.lease_ms, other.lease_ms), "+".join(one for one in FENCES if one in either))

    @property
    def row(self) -> PutMark:
        """Returns the write that stores it."""
        return PutMark(MarkRow(KIND, SUBJECT, self.fence, self.lease_ms))


def fences_in(text: str) -> frozenset[str]:
    """Returns the fences that a stored text names; raises ValueError where this daemon lacks one of them."""
    found = frozenset((LEASE, LOG) if text == BOTH else text.split("+"))
    if unknown := found.difference(FENCES):
        raise ValueError(f"fence {min(unknown)!r} is not known to this daemon: start a newer one")
    return found


def stored(marks: Iterable[MarkRow]) -> Regime | None:
    """Finds the regime among the marks of a catalog; None in a new one."""
    return next((Regime(one.until_ms, one.value) for one in marks if one.kind == KIND), None)
