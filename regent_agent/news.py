"""Keeps what a server tells the daemon of its own accord: regions with data of their own, and loads of regions."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import Final

from regent_agent.protocol import LOADS_MAX, OWNED_MAX, RESULTS_MAX, Accepted, Independent, Owned, RegionLoad, Request
from regent_agent.protocol import Loads as LoadsMessage
from regent_agent.service import OpenedRegion

log = logging.getLogger("regent_agent")

LOOKED_MAX: Final = 10_000
"""Regions of a former daemon that are looked at for one request."""
AGAIN_S: Final = 1.0
"""Pause until regions are named again."""
LOOK_S: Final = 5.0
"""Interval at which the service's loads are looked at."""
ALL_S: Final = 60.0
"""Interval at which the loads of all regions are sent."""
CHANGE_PERCENT: Final = 10
"""A region whose size changed by more is sent at the next look."""


class Independents:
    """Holds the regions that have data of their own: until the daemon has accepted that, and then while they are open.

    The next daemon is told again: its store may have been restored from a copy that is older than the word.
    ``opened``: the regions that are open here.
    """

    def __init__(self, clock: Callable[[], float], opened: Mapping[int, OpenedRegion]) -> None:
        self._clock, self._opened = clock, opened
        self._tokens: dict[int, int] = {}
        """Regions that are to be named."""
        self._told = OrderedDict[int, int]()
        """Regions that were accepted, some of which may be closed by now."""
        self._repeated = OrderedDict[int, int]()
        """Regions that a daemon before accepted: those that are open still are to be named to this one."""
        self._named: list[Owned] = []
        """Regions of the request whose response is awaited."""
        self._due_s = 0.0

    def add(self, region: OpenedRegion) -> None:
        """Keeps a region, to be named at once, unless that of a later open is kept."""
        self._tokens[region.region] = max(region.token, self._tokens.get(region.region, 0))
        self._due_s = self._clock()

    def wait_s(self) -> float | None:
        """Returns the time until regions are named, None without one."""
        return max(self._due_s - self._clock(), 0.0) if self._tokens or self._repeated else None

    def due(self) -> list[Owned]:
        """Returns the regions that are named now; the next ones follow after a pause, or once these are accepted."""
        if self.wait_s() != 0.0:
            return []
        self._take_repeated()
        self._due_s = self._clock() + (AGAIN_S if self._tokens else 0.0)
        self._named = [Owned(*one) for one in islice(self._tokens.items(), RESULTS_MAX)]
        return self._named

    def accepted(self, again: Collection[int]) -> None:
        """Takes the regions that were named as accepted, except those to be named again."""
        named, self._named = self._named, []
        for one in named:
            if self._tokens.get(one.region) != one.token:
                continue
            del self._tokens[one.region]
            if one.region in again:
                self._tokens[one.region] = one.token  # behind those that were not named yet
            else:
                self._told[one.region] = max(one.token, self._told.get(one.region, 0))
        self._forget_closed(2 * len(named))
        if not again:
            self._due_s = self._clock()

    def anew(self) -> None:
        """Has all regions be named to another daemon; what the one before responds from now on counts nothing."""
        for region, token in self._told.items():
            self._repeated[region] = max(token, self._repeated.get(region, 0))
        self._told.clear()
        self._named = []
        self._due_s = self._clock()

    def _take_repeated(self) -> None:
        """Takes those that the next request has room for; it looks at some only, a server may have thousands."""
        for _ in range(min(len(self._repeated), LOOKED_MAX)):
            if len(self._tokens) >= RESULTS_MAX:
                return
            region, token = self._repeated.popitem(last=False)
            if self._may_be_lost(region, token):
                self._tokens[region] = max(token, self._tokens.get(region, 0))

    def _forget_closed(self, looks: int) -> None:
        """Looks at those that were accepted first: twice as many as came, so that the closed ones stay few."""
        for _ in range(min(len(self._told), looks)):
            region, token = self._told.popitem(last=False)
            if self._may_be_lost(region, token):
                self._told[region] = token

    def _may_be_lost(self, region: int, token: int) -> bool:
        """Checks whether a region is open still as it was named: a later open is told what it begins as."""
        has = self._opened.get(region)
        return has is not None and has.token == token and bool(has.sources)


class Loads:
    """Chooses the loads of regions that are sent: all once a minute, new and grown regions in between."""

    def __init__(self, clock: Callable[[], float], read: Callable[[], Iterable[RegionLoad]] | None) -> None:
        self._clock, self._read = clock, read
        self._sent: dict[int, RegionLoad] = {}
        self._waiting: list[RegionLoad] = []
        self._look_s = self._all_s = 0.0

    def wait_s(self) -> float | None:
        """Returns the time until loads are looked at or sent; None where the service has none."""
        if self._read is None:
            return None
        return 0.0 if self._waiting else max(self._look_s - self._clock(), 0.0)

    def due(self) -> list[RegionLoad]:
        """Returns the loads of the next message."""
        if self._read is not None and not self._waiting and self._clock() >= self._look_s:
            self._look()
        return self._waiting[:LOADS_MAX]

    def accepted(self, sent: list[RegionLoad]) -> None:
        """Goes on behind the loads of a message."""
        del self._waiting[: len(sent)]

    def anew(self) -> None:
        """Has all be sent at the next look: another daemon knows none."""
        self._waiting.clear()
        self._look_s = self._all_s = 0.0

    def _look(self) -> None:
        assert self._read is not None
        now_s = self._clock()
        self._look_s = now_s + LOOK_S
        try:
            found = {one.region: one for one in self._read()}
        except Exception:
            log.exception("the service failed to give the loads of its regions; none are sent until the next look")
            return
        if len(found) > OWNED_MAX:
            log.error("the service gave loads of %d regions, at most %d are sent", len(found), OWNED_MAX)
            return
        if now_s >= self._all_s:
            self._all_s = now_s + ALL_S
            self._waiting = list(found.values())
        else:
            before = self._sent
            self._waiting = [one for one in found.values() if _changed(before.get(one.region), one)]
        kept = {region: one for region, one in self._sent.items() if region in found}
        self._sent = kept | {one.region: one for one in self._waiting}


class News:
    """Joins both, and sends them to a daemon that knows such requests."""

    def __init__(
        self,
        clock: Callable[[], float],
        read: Callable[[], Iterable[RegionLoad]] | None,
        opened: Mapping[int, OpenedRegion],
    ) -> None:
        self.independents, self.loads = Independents(clock, opened), Loads(clock, read)

    def anew(self) -> None:
        """Has all be sent again: another daemon may know none of it."""
        self.independents.anew()
        self.loads.anew()

    def wait_s(self, known: Collection[str]) -> float | None:
        """Returns the time until something is to be sent, None without; ``known``: tags that the daemon knows."""
        waits = [self.independents.wait_s()] if _tag(Independent) in known else []
        waits += [self.loads.wait_s()] if _tag(LoadsMessage) in known else []
        return min((one for one in waits if one is not None), default=None)

    async def send(
        self, process: tuple[str, int, int], known: Collection[str], request: Callable[[Request], Awaitable[Accepted]]
    ) -> None:
        """Sends what is due. ``process``: server, incarnation and epoch."""
        if _tag(Independent) in known and (regions := self.independents.due()):
            accepted = await request(Independent(*process, regions))
            self.independents.accepted(set(accepted.again))
        if _tag(LoadsMessage) in known and (loads := self.loads.due()):
            await request(LoadsMessage(*process, loads))
            self.loads.accepted(loads)


def _tag(kind: type[Independent | LoadsMessage]) -> object:
    return kind.__struct_config__.tag


def _changed(before: RegionLoad | None, now: RegionLoad) -> bool:
    """Checks whether a region is new, or its size changed enough for a message of its own."""
    if before is None:
        return True
    return abs(now.size_bytes - before.size_bytes) * 100 > before.size_bytes * CHANGE_PERCENT
