"""Declares what a report of regions finds, with the command that mends it, and counts it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, ParamSpec

P = ParamSpec("P")

RESTORE: Final = (
    "no command mends this: stop the daemon, restore the rows from a copy of the store, then start it; the runbook of "
    "regions has what to do where no copy has them"
)
"""The mend of what only the store itself can be given back."""

COPY: Final = "stop the daemon, restore the rows from a copy of the store, then start it; where no copy has them, "
"""Begin of the mend of what commands give back only in part."""


def row_mend(region: int, table: str) -> str:
    """Returns the mend of a row of a region that cannot be used."""
    adopt = f"'regent regions adopt {region} --table {table or 'TABLE'}' stores the region again"
    return f"{COPY}{adopt}, or 'regent regions forget {region}' removes the row"


class FindingKind(StrEnum):
    """Kinds of findings, in the order in which a report counts them."""

    DAMAGED = "damaged"
    """A stored row cannot be used, and is left out."""
    HOLE = "hole"
    """No region of a table has some keys."""
    OVERLAP = "overlap"
    """Several regions of a table have the same keys."""
    NOT_OPEN = "not_open"
    """A region of an enabled table is not open, and no procedure goes on with it, or one whose opens fail."""
    UNKNOWN_SERVER = "unknown_server"
    """The owner of a region is no process that may serve, and nothing deals with its crash."""
    CLAIMED_TWICE = "claimed_twice"
    """A process lists a region that another one has."""
    NO_HEIRS = "no_heirs"
    """A region was split, merged or truncated, and no region has its keys."""
    NO_PARENT = "no_parent"
    """The data of a region begins as that of a region, or a snapshot, of which no row tells."""
    NO_REGION = "no_region"
    """A row says where the data of a region begins that is not there."""
    NO_NAMESPACE = "no_namespace"
    """The namespace of a table has no row."""
    HALTED = "halted"
    """A table is on its way to another state, and no procedure takes it there."""


class Finding(NamedTuple):
    """One thing that is wrong. ``what``: in a sentence; ``mend``: the command, or what else mends it.

    ``pid``: of the procedure that has the table or one of its regions, 0 without.
    """

    kind: FindingKind
    what: str
    mend: str
    table: str = ""
    regions: tuple[int, ...] = ()
    start: bytes = b""
    end: bytes = b""
    server: str = ""
    pid: int = 0


class Refusal(NamedTuple):
    """Why a repair is not made, and what would make it succeed."""

    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}"


class Held(NamedTuple):
    """What goes on. ``goes_on``: checks whether a procedure is there, and is run.

    ``regions``, ``servers``: pids by what procedures are about, of those that wait for a lock, too.
    ``crashing``: processes whose crash has begun. ``soon``: regions that the daemon is about to have picked up.
    ``claims``: regions that processes list against the model. ``halted``: tables that no procedure takes on.
    ``failing``: regions whose opens fail again and again, with what the latest server said.
    """

    goes_on: Callable[[int], bool]
    regions: Mapping[int, int]
    servers: Mapping[tuple[str, int], int]
    crashing: Container[tuple[str, int]] = frozenset()
    soon: Container[int] = frozenset()
    claims: Sequence[tuple[int, Sequence[tuple[str, int]]]] = ()
    halted: Sequence[str] = ()
    failing: Mapping[int, str] = {}


class Scope(NamedTuple):
    """What a report is about. ``table``: this one alone; ``kind``: such findings alone count.

    ``listed_max``: so many are listed, the others are counted. ``serving``: whether a daemon works with the model. Else
    it was read of a store, and ``owners`` names the owner of each region whose process has no row. ``had``: regions
    without a row that processes have listed, with these. ``mends``: whether holes say what mends them.
    """

    table: str = ""
    kind: FindingKind | None = None
    listed_max: int = 500
    serving: bool = True
    owners: Mapping[int, str] = {}
    had: Mapping[int, str] = {}
    mends: bool = True

    def has(self, table: str) -> bool:
        """Checks whether a table is in it."""
        return not self.table or table == self.table


class Findings:
    """What a report has found. ``regions``, ``tables``: how many it has judged.

    ``in_work``: regions that are not where they are to be, and with which something goes on.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self.counts: Counter[FindingKind] = Counter()
        self.listed: list[Finding] = []
        self.regions = self.tables = self.in_work = 0

    def add(self, kind: FindingKind, describe: Callable[P, Finding], *args: P.args, **kwargs: P.kwargs) -> None:
        """Counts a finding of a wanted kind; describes it where it is to be listed."""
        wanted = self._scope.kind
        if wanted is not None and wanted is not kind:
            return
        self.counts[kind] += 1
        if len(self.listed) < self._scope.listed_max:
            self.listed.append(describe(*args, **kwargs))

    def count(self, kind: FindingKind, more: int) -> None:
        """Counts more findings of a wanted kind, which cannot be described."""
        if more and self._scope.kind in (None, kind):
            self.counts[kind] += more
