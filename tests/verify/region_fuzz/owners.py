"""Watches owners: no region has two at a time, no process opens with a token that another process had."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from regent_agent.service import OpenedRegion

Key = tuple[str, int]
"""Name and incarnation of a process."""
LOOK_S: Final = 0.02


class Owner(Protocol):
    """A process of a server, as far as it owns regions."""

    key: Key

    @property
    def owned(self) -> Mapping[int, OpenedRegion]:
        """Returns the regions that it may serve now, by number."""
        ...


class Owners:
    """Judges one run. ``faults``: what must never happen and did; ``counts``: opens, tokens and looks.

    ``alive``: returns the processes that may serve.
    """

    def __init__(self, alive: Callable[[], Iterable[Owner]]) -> None:
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()
        self.fenced: set[Key] = set()
        """Processes whose log takes no edits any more: what they believe does no harm."""
        self._alive = alive
        self._tokens: dict[int, tuple[int, Key]] = {}

    def opened(self, key: Key, region: OpenedRegion) -> None:
        """Notes that a process opens a region."""
        self.counts["opens"] += 1
        token, last = self._tokens.get(region.region, (0, key))
        if region.token < token or (region.token == token and last != key):
            self.faults.append(f"{key} opens {region.region} with token {region.token}; {last} had {token}")
        self._tokens[region.region] = max((token, last), (region.token, key), key=lambda one: one[0])

    def look(self) -> None:
        """Looks whether two processes have the same region."""
        self.counts["looks"] += 1
        owners: dict[int, Key] = {}
        for one in self._alive():
            if one.key in self.fenced:
                continue
            for region in one.owned:
                if (other := owners.setdefault(region, one.key)) != one.key:
                    self.faults.append(f"region {region} is served by {other} and {one.key}")

    async def watch(self) -> None:
        """Looks again and again until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)
