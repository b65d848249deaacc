"""Keeps what servers list against the model: regions that they may have, and tokens that the store knows nothing of.

A record that cannot be used, or that an operator has ended, may have sent a region to a server. So after a failover a
region that no usable procedure moves stays where it is until each process in the store has listed what it has, or is
fenced. Invariant: while a process claims a region that it is to close, no other process gets that region.

A token is stored before its open is sent. So one that is above each token that the store has for its region comes from
a store that went on after this one was copied, or from a procedure whose record is gone. Where epochs and numbers show
no copy (:mod:`controller.regions.restored`), such lists do. The region is opened again, with a token above that one.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from itertools import islice
from typing import Final, TypeVar

from controller.process.wording import named
from controller.regions.dispatcher import Key
from controller.regions.restored import NUMBERS_AHEAD_MAX
from state_machines.regions.entities import Region
from state_machines.regions.states import RegionState

log = logging.getLogger("regent.regions")

COPY: Final = (
    "server %s has region %d with token %d, of which the store knows nothing: was the store restored from a copy? What "
    "servers list against it is closed and opened again; see 'A store that was restored' in the runbook of regions"
)
HAD_MAX: Final = 1_000
"""Regions whose claimants a term remembers."""
NOTED_MAX: Final = 10_000
"""Regions that a term notes."""
K = TypeVar("K")
V = TypeVar("V")
NAMED_MAX: Final = 3
"""Processes that a sentence names; the others are counted."""
_NONE: Final[Mapping[int, int]] = {}


class Contradictions:
    """Notes what lists of servers contradict. ``noted``: by region, what a server said first.

    ``incomplete``: more than ``NOTED_MAX`` regions are listed against the store. Then any region may be one of them.
    """

    def __init__(self) -> None:
        self.noted: dict[int, str] = {}
        self.incomplete = False
        self._believed_max = NUMBERS_AHEAD_MAX
        self._tokens: dict[int, int] = {}
        self._left_out = 0
        """The highest token that is believed, of the regions that are not noted."""
        self._below: dict[int, Region] = {}
        """Regions that are open, or may be, with a lower token than a server has listed."""

    def begin(self, number: int) -> None:
        """Takes the highest number of the store: tokens that are farther above it than a copy explains are a fault."""
        self._believed_max = number + NUMBERS_AHEAD_MAX

    def note(self, id_: int, region: Region | None, token: int, server: object) -> None:
        """Takes an entry of a list against the model."""
        if region is not None and token <= max(region.token, region.opening, self.token(id_)):
            return
        if len(self.noted) >= NOTED_MAX and id_ not in self.noted:
            self.incomplete = True
            self._left_out = max(self._left_out, self._believed(token))
            return
        if not self.noted:
            log.warning(COPY, server, id_, token)
        known = "has no such region" if region is None else f"has {region.token} at {region.server or 'no server'}"
        self.noted.setdefault(id_, f"{server} has region {id_} with token {token}, the store {known}")
        if region is not None:
            self._tokens[id_] = token
            self._below[id_] = region

    def token(self, id_: int) -> int:
        """Returns the highest token that a server has listed against the store; 0 where none has."""
        return self._tokens.get(id_, 0)

    def above(self, id_: int) -> int:
        """Returns the token above which a region is opened: of a region that may not be noted, the highest of those."""
        return max(self._believed(self.token(id_)), self._left_out)

    def _believed(self, token: int) -> int:
        return token if token <= self._believed_max else 0

    def is_below(self, region: Region) -> bool:
        """Checks whether a server may have a region with a higher token than the store knows."""
        return bool(self) and self.above(region.id) > max(region.token, region.opening)

    def __bool__(self) -> bool:
        """Returns whether a server has listed any token against the store."""
        return bool(self._tokens or self._left_out)

    def due(self, regions: Mapping[int, Region], count_max: int) -> list[Region]:
        """Returns some regions that are open with too low a token, and that no procedure moves."""
        for id_, one in list(self._below.items()):
            if regions.get(id_) is not one or one.token > self._tokens[id_]:
                del self._below[id_]
        return list(
            islice((one for one in self._below.values() if one.state is RegionState.OPEN and not one.pid), count_max)
        )

    def begun(self, region: Region) -> None:
        """Enters that a procedure opens a region again."""
        self._below.pop(region.id, None)


class Claimants:
    """Holds the processes that have not listed their regions in this term, and what others have against the model.

    ``held``: pids that wait until a region is known to be free. They run again once a region may have become free.
    ``had``: a process that has listed a region against the model in this term, by region.
    """

    def __init__(self) -> None:
        self.processes: set[Key] = set()
        self.held: set[int] = set()
        self.had: dict[int, Key] = {}
        self._claims: dict[Key, set[int]] = {}
        self._claimants: dict[int, set[Key]] = {}
        self._kept: dict[int, dict[Key, int]] = {}
        self._freed = False

    def begin(self, processes: Iterable[Key]) -> None:
        """Takes the processes that the store names, and that may serve."""
        self.processes.update(processes)

    def listed(self, process: Key, strays: Iterable[int], kept: Mapping[int, int] = _NONE) -> None:
        """Takes the regions that a process has against the model: all of them, in place of those before.

        ``kept``: tokens of regions whose rows are left out: such a region stays where it is until an operator decides.
        """
        self._freed = self._freed or self.processes == {process}
        for region in [one for one, of in self._kept.items() if process in of and one not in kept]:
            self.settled(process, region)
        for region, token in kept.items():
            self._kept.setdefault(region, {})[process] = token
        self.processes.discard(process)
        found = set(strays)
        for region in self._claims.get(process, set()) - found:
            self.settled(process, region)
        for region in found:
            self._claimants.setdefault(region, set()).add(process)
            if len(self.had) < HAD_MAX:
                self.had[region] = process
        if found:
            self._claims[process] = found

    def settled(self, process: Key, region: int) -> None:
        """Notes that a process has closed a region that it was not to have, or is its owner by now."""
        kept = self._kept.get(region, {})
        self._freed = self._freed or process in self._claimants.get(region, ()) or process in kept
        if kept.pop(process, None) is not None and not kept:
            del self._kept[region]
        _take_from(self._claims, process, region)
        _take_from(self._claimants, region, process)

    def gone(self, process: Key) -> None:
        """Notes that a process is fenced, or has left: it has no region."""
        self.listed(process, ())

    def claims(self, process: Key) -> int:
        """Returns how many regions a process has against the model."""
        return len(self._claims.get(process, ()))

    def claimed(self) -> list[tuple[int, tuple[Key, ...]]]:
        """Returns the regions that processes have against the model, with these processes."""
        return [(region, tuple(claimants)) for region, claimants in self._claimants.items()]

    def unknown(self, known: Container[int]) -> tuple[int, tuple[Key, ...]] | None:
        """Returns a region that processes have and that is none of ``known``, with these; None without one."""
        return next(((region, tuple(of)) for region, of in self._claimants.items() if region not in known), None)

    def keepers(self, region: int) -> Mapping[Key, int]:
        """Returns the processes that have a region whose row is left out, with the tokens of their opens."""
        return self._kept.get(region, {})

    @property
    def holds_any(self) -> bool:
        """Returns whether :meth:`is_held` may hold for any region."""
        return bool(self.processes or self._claimants)

    def is_held(self, region: Region) -> bool:
        """Checks whether a region may not go to a server yet."""
        return (region.doubtful and bool(self.processes)) or region.id in self._claimants

    def may_have(self, region: Region) -> Iterable[Key]:
        """Returns the processes because of which a region may not go to a server yet."""
        if region.doubtful and self.processes:
            return self.processes
        return self._claimants.get(region.id, ())

    def why_held(self, region: Region) -> str:
        """Returns why a region may not go to a server yet; empty where it may."""
        if region.doubtful and self.processes:
            return f"{_named(self.processes)} may have it, and did not list their regions since the daemon started"
        claimants = self._claimants.get(region.id, ())
        return f"{_named(claimants)} has it, and is to close it" if claimants else ""

    def take_held(self) -> list[int]:
        """Returns the pids that wait, to be run again, if a region may have become free since the last call."""
        if not self._freed:
            return []
        self._freed = False
        held, self.held = self.held, set()
        return sorted(held)


def _take_from(sets: dict[K, set[V]], key: K, value: V) -> None:
    """Removes a value from the set of a key, and the set with its last one."""
    found = sets.get(key, set())
    found.discard(value)
    if not found:
        sets.pop(key, None)


def _named(processes: Iterable[Key]) -> str:
    return named((f"{name},{incarnation}" for name, incarnation in sorted(processes)), NAMED_MAX)
