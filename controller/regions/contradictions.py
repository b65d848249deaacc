"""Keeps the tokens that servers list and the store knows nothing of: it may have been restored from a copy.

A token is stored before its open is sent. So one that is above each token that the store has for its region comes from
a store that went on after this one was copied, or from a procedure whose record is gone. Where epochs and numbers show
no copy (:mod:`controller.regions.seen`), such lists do. The region is opened again, with a token above the listed one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import islice
from typing import Final

from controller.regions.seen import NUMBERS_AHEAD_MAX
from state_machines.regions.model import Region
from state_machines.regions.states import RegionState

log = logging.getLogger("regent.regions")

COPY: Final = (
    "server %s has region %d with token %d, of which the store knows nothing: was the store restored from a copy? What "
    "servers list against it is closed and opened again; see 'A store that was restored' in the runbook of regions"
)
NOTED_MAX: Final = 10_000
"""Regions that a term notes."""


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
