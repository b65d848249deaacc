"""Chooses servers for regions, behind the interface that balancers use; regions moved lately stay for a while.

A plan is made outside of procedures; they only carry it out. No plan names a server that is not among ``servers``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

from state_machines.regions.model import Region, Server

_Turn: TypeAlias = tuple[int, str, int]
"""A server: the number of its regions, its name, and its position."""


class Wish(Struct, frozen=True, gc=False):
    """A region that needs a server. ``last``: name of the one that had it; ``avoid``: name of one that could not.

    ``to``: name of the one that it goes to wherever that is online: it is pinned there, held for it, or moved there.
    """

    region: Region
    last: str = ""
    avoid: str = ""
    to: str = ""


class Placement(Protocol):
    """Makes plans. It is pure: the same arguments give the same plan."""

    def place(self, wishes: Sequence[Wish], servers: Sequence[Server], draw: Callable[[int], int]) -> list[Server]:
        """Returns a server for each wish, in the same order. ``servers`` is not empty; ``draw(n)`` is below n."""
        ...


class RoundRobin:
    """Gives each server as many regions as the others, beginning with those that have the fewest."""

    def place(self, wishes: Sequence[Wish], servers: Sequence[Server], draw: Callable[[int], int]) -> list[Server]:
        """Returns a server for each wish."""
        turns = [(len(one.regions) + one.expected, one.name, number) for number, one in enumerate(servers)]
        heapify(turns)
        return [servers[_next(turns, wish.avoid)] for wish in wishes]


class Retain:
    """Gives regions back to the server that had them, by its name; the others go round robin."""

    def place(self, wishes: Sequence[Wish], servers: Sequence[Server], draw: Callable[[int], int]) -> list[Server]:
        """Returns a server for each wish."""
        by_name = {one.name: one for one in servers}
        others = [wish for wish in wishes if wish.last not in by_name or wish.last == wish.avoid]
        rest = iter(RoundRobin().place(others, servers, draw))
        return [
            next(rest) if wish.last not in by_name or wish.last == wish.avoid else by_name[wish.last] for wish in wishes
        ]


class Random:
    """Draws a server for each region."""

    def place(self, wishes: Sequence[Wish], servers: Sequence[Server], draw: Callable[[int], int]) -> list[Server]:
        """Returns a server for each wish."""
        found: list[Server] = []
        for wish in wishes:
            some = [one for one in servers if one.name != wish.avoid] or servers
            found.append(some[draw(len(some))])
        return found


def planned(
    placement: Placement,
    wishes: Sequence[Wish],
    servers: Sequence[Server],
    prompt: Sequence[Server],
    draw: Callable[[int], int],
) -> list[Server]:
    """Returns a server for each wish: the one that it names where that is among ``servers``, else by the placement.

    ``prompt``: those of ``servers`` that the placement chooses from.
    """
    by_name = {one.name: one for one in servers}
    named = [by_name.get(wish.to) if wish.to and wish.to != wish.avoid else None for wish in wishes]
    rest = [wish for wish, server in zip(wishes, named, strict=True) if server is None]
    others = iter(placement.place(rest, prompt, draw))
    return [next(others) if server is None else server for server in named]


PLACEMENTS: Final[Mapping[str, Placement]] = {"round_robin": RoundRobin(), "retain": Retain(), "random": Random()}


def _next(turns: list[_Turn], avoid: str) -> int:
    """Returns the server with the fewest regions, one with another name where there is one; it has one more then."""
    aside: list[_Turn] = []
    while avoid and len(turns) > 1 and turns[0][1] == avoid:
        aside.append(heappop(turns))
    count, name, number = turns[0]
    heapreplace(turns, (count + 1, name, number))
    for one in aside:
        heappush(turns, one)
    return number


class Cooldown:
    """Holds until when each region rests after a move. ``length_ms`` 0: none does. Times are the loop's."""

    def __init__(self, length_ms: int) -> None:
        self._length_ms = length_ms
        self._until_ms: dict[int, int] = {}
        """In the order of the times."""

    def moved(self, region: int, now_ms: int) -> None:
        """Enters a region that was moved, and forgets those whose time is over."""
        for one in [*self._over(now_ms), region]:
            self._until_ms.pop(one, None)
        if self._length_ms:
            self._until_ms[region] = now_ms + self._length_ms

    def left_ms(self, region: int, now_ms: int) -> int:
        """Returns how long a region rests still."""
        return max(0, self._until_ms.get(region, 0) - now_ms)

    def __len__(self) -> int:
        return len(self._until_ms)

    def _over(self, now_ms: int) -> list[int]:
        found = []
        for region, until_ms in self._until_ms.items():
            if until_ms > now_ms:
                break
            found.append(region)
        return found
