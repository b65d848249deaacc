"""Looks at regions that servers open: each open has a token of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from controller.regions.term import RegionsTerm
from regent_agent.service import OpenedRegion
from testing.simulated.regions.storage import Key

if TYPE_CHECKING:
    from tests.simulation.regions.world import SimulatedRegions


class Opens:
    """Judges the opens of one run."""

    def __init__(self, world: SimulatedRegions) -> None:
        self._world = world
        self._missing: dict[tuple[Key, int, int], str] = {}
        """Acknowledged edits that an open did not find, by process, region and token."""
        self._owned: set[tuple[Key, int, int]] = set()
        """Regions that processes have had as their own, with the tokens."""
        self._copied: set[tuple[int, int]] = set()
        self._unknown: set[tuple[int, int]] = set()
        """Opens, by region and token, of which a restored store does not know, while no term has gone above them."""

    def opened(self, key: Key, region: OpenedRegion) -> None:
        """Looks at a region that opens: its token is of this process alone. What it misses counts once served."""
        world = self._world
        world.note(f"{key} opens {region.region} with {region.token}")
        world.counts["open"] += 1
        first = world.storage.opened.setdefault((region.region, region.token), key)
        if first != key and self._repeats((region.region, region.token), first):
            world.violated("TokensGrow", f"{key} and {first} open region {region.region} with token {region.token}")
        if missing := world.storage.missing(region):
            self._missing[key, region.region, region.token] = str(missing)

    def owns(self, key: Key, owned: Iterable[OpenedRegion]) -> None:
        """Looks at regions that a process has as its own since its last event.

        An open whose znode was taken meanwhile may end late: it is closed, and serves nothing.
        """
        for region in owned:
            one = key, region.region, region.token
            if one not in self._owned:
                self._owned.add(one)
                self._first(key, region, self._missing.get(one, ""))

    def _first(self, key: Key, region: OpenedRegion, missing: str) -> None:
        """Looks at a region that a process has from now on."""
        world = self._world
        if missing:
            world.violated("NoLostWrite", f"{key} opens region {region.region} without {missing}")
        found = [one for one in world.serving(region.table, region.start, region.end) if one[1] != region.region]
        if world.damage.is_double(region.region):
            return
        if found := [one for one in found if not world.damage.is_double(one[1])]:
            world.violated("SplitAtomicity", f"{key} opens region {region.region}, {found} have keys of it")

    def copied(self) -> None:
        """Notes that the store is copied."""
        self._copied = set(self._world.storage.opened)

    def restored(self) -> None:
        """Notes that the copy takes the place of the store."""
        self._unknown = self._world.storage.opened.keys() - self._copied

    def look(self, term: RegionsTerm) -> None:
        """Looks whether a term has gone above all opens."""
        if term.env.restored:
            self._unknown.clear()

    def knows_nothing_of(self, region: int, token: int) -> bool:
        """Checks whether the store is a copy that was made before an open, and no term is above that yet.

        Another process may have the region until the list of its owner is here, and that has closed it (record 114).
        """
        return (region, token) in self._unknown

    def _repeats(self, opened: tuple[int, int], first: Key) -> bool:
        """Checks whether a token that ``first`` had may not be given again.

        A store that was restored from a copy gives tokens again that it gave after the copy, until one of the processes
        that have them comes (record 114).
        """
        term = self._world.term
        server = None if term is None else term.env.model.servers.get(first)
        return opened not in self._unknown or (server is not None and server.here)
