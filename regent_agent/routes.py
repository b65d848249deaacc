"""Keeps routes of a client: bounded, without overlaps, and never older news over newer ones."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple, TypeAlias

from regent_agent.protocol import Route

Place: TypeAlias = tuple[str, bytes]
"""Table and start of a route."""
OUTDATED: Final = -1
"""Change of routes that any news replace."""


class _Known(NamedTuple):
    """A route and the number of the change at which the daemon gave it. ``doubted``: its server did not serve it."""

    route: Route
    change: int
    doubted: bool = False


class RouteCache:
    """Holds at most ``routes_max`` routes; those that were not used for longest give way."""

    def __init__(self, routes_max: int) -> None:
        self._routes_max = routes_max
        self._known: OrderedDict[Place, _Known] = OrderedDict()
        self._starts: dict[str, list[bytes]] = {}
        """Starts of the known routes of each table, in order."""

    def __len__(self) -> int:
        return len(self._known)

    def tables(self) -> list[str]:
        """Returns the tables that have routes here."""
        return list(self._starts)

    def find(self, table: str, key: bytes, *, doubted: bool = False) -> Route | None:
        """Returns the route of a key, if it is known; one that is doubted only where that is said."""
        starts = self._starts.get(table, [])
        index = bisect_right(starts, key) - 1
        if index < 0:
            return None
        place = table, starts[index]
        known = self._known[place]
        if (known.route.end and key >= known.route.end) or (known.doubted and not doubted):
            return None
        self._known.move_to_end(place)
        return known.route

    def put(self, route: Route, change: int) -> None:
        """Keeps a route instead of all that overlap it, unless one of these is newer."""
        overlapping = self._overlapping(route)
        if any(self._known[place].change > change for place in overlapping):
            return
        for place in overlapping:
            self._drop(place)
        place = route.table, route.start
        self._known[place] = _Known(route, change)
        starts = self._starts.setdefault(route.table, [])
        starts.insert(bisect_right(starts, route.start), route.start)
        if len(self._known) > self._routes_max:
            self._drop(next(iter(self._known)))

    def refresh(self, routes: Iterable[Route], change: int) -> None:
        """Takes news of routes that are known; others are left out, since no client has requested them.

        A region that was split or merged leaves last, so that those with its keys come in its place.
        """
        for route in sorted(routes, key=_is_gone):
            places = self._overlapping(route)
            if not route.gone and places:
                self.put(route, change)
            for place in places if route.gone else ():
                known = self._known[place]
                if known.route.region == route.region and known.change <= change:
                    self._drop(place)

    def doubt(self, route: Route) -> None:
        """Has any news replace a route, unless one with a higher token has done so."""
        for place in self._overlapping(route):
            known = self._known[place].route
            if known.token <= route.token:
                self._known[place] = _Known(known, OUTDATED, doubted=True)

    def forget_table(self, table: str) -> None:
        """Removes all routes of a table."""
        for start in self._starts.pop(table, []):
            del self._known[table, start]

    def forget_unfollowed(self, followed: Collection[str], change: int) -> None:
        """Removes routes of tables whose changes up to ``change`` did not come."""
        late = [place for place, known in self._known.items() if place[0] not in followed and known.change < change]
        for place in late:
            self._drop(place)

    def outdate(self) -> None:
        """Has any news replace the routes: another daemon counts its changes anew."""
        for place, known in self._known.items():
            self._known[place] = known._replace(change=OUTDATED)

    def _overlapping(self, route: Route) -> list[Place]:
        starts = self._starts.get(route.table, [])
        found = []
        for index in range(max(bisect_right(starts, route.start) - 1, 0), len(starts)):
            start = starts[index]
            if route.end and start >= route.end:
                break
            end = self._known[route.table, start].route.end
            if not end or end > route.start:
                found.append((route.table, start))
        return found

    def _drop(self, place: Place) -> None:
        table, start = place
        del self._known[place]
        starts = self._starts[table]
        del starts[bisect_right(starts, start) - 1]
        if not starts:
            del self._starts[table]


def _is_gone(route: Route) -> bool:
    return route.gone
