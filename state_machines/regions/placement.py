"""Chooses servers for regions, behind the interface that balancers use; regions moved lately stay for a while.

A plan is made outside of procedures; they only carry it out. No plan names a server that is not among ``servers``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Protocol, TypeAlias

from msgspec import Struct

from state_machines.regions.entities import Region, Server

Weights: TypeAlias = Mapping[str, float]
"""The share of servers beside the others, by name; 1.0 for one that has none of its own."""
_Turn: TypeAlias = tuple[float, float, str, int]
"""A server: what it has by its weight, what decides between equal ones, its name, and its position."""


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

    def place(
        self, wishes: Sequence[Wish], servers: Sequence[Server], draw: Callable[[int], int], weights: Weights
    ) -> list[Server]:
        """Returns a server for each wish, in the same order. ``servers`` is not empty; ``draw(n)`` is below n."""
        ...


class RoundRobin(Struct, frozen=True, gc=False):
    """Gives each server its share by weight, beginning with those that have the fewest regions.

    ``by_table``: the regions of each table are dealt to all servers, as a balance by table spreads them.
    """

    by_table: bool = False

    def place(
        self, wishes: Sequence[Wish], servers: Sequence[Server], draw: Callable[[int], int], weights: Weights
    ) -> list[Server]:
        """Returns a server for each wish."""
        parts = [1 / weights.get(one.name, 1.0) for one in servers] if weights else [1.0] * len(servers)
        amounts = [(len(one.regions) + one.expected) * part for one, part in zip(servers, parts, strict=True)]
        none = [0.0] * len(servers)
        heaps, found = dict[str, list[_Turn]](), list[Server]()
        for wish in wishes:
            group = wish.region.table.name if self.by_table else ""
            if group not in heaps:
                heaps[group] = _turns(servers, none, amounts) if self.by_table else _turns(servers, amounts, none)
            number = _next(heaps[group], wish.avoid, parts)
            amounts[number] += parts[number]
            found.append(servers[number])
        return found


class Retain(Struct, frozen=True, gc=False):
    """Gives regions back to the server that had them, by its name; the others go round robin."""

    others: RoundRobin = RoundRobin()

    def place(
        self, wishes: Sequence[Wish], servers: Sequence[Server], draw: Callable[[int], int], weights: Weights
    ) -> list[Server]:
        """Returns a server for each wish."""
        by_name = {one.name: one for one in servers}
        others = [wish for wish in wishes if wish.last not in by_name or wish.last == wish.avoid]
        rest = iter(self.others.place(others, servers, draw, weights))
        return [
            next(rest) if wish.last not in by_name or wish.last == wish.avoid else by_name[wish.last] for wish in wishes
        ]


class Random:
    """Draws a server for each region."""

    def place(
        self, wishes: Sequence[Wish], servers: Sequence[Server], draw: Callable[[int], int], weights: Weights
    ) -> list[Server]:
        """Draws a server for each wish. Weights change nothing."""
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
    weights: Weights,
) -> list[Server]:
    """Returns a server for each wish: the one that it names where that is among ``servers``, else by the placement.

    ``prompt``: those of ``servers`` that the placement chooses from.
    """
    by_name = {one.name: one for one in servers}
    named = [by_name.get(wish.to) if wish.to and wish.to != wish.avoid else None for wish in wishes]
    rest = [wish for wish, server in zip(wishes, named, strict=True) if server is None]
    others = iter(placement.place(rest, prompt, draw, weights))
    return [next(others) if server is None else server for server in named]


def placement_of(name: str, *, by_table: bool = False) -> Placement:
    """Returns a placement by its name in the settings."""
    shares = RoundRobin(by_table)
    found: dict[str, Placement] = {"round_robin": shares, "retain": Retain(shares), "random": Random()}
    return found[name]


def _turns(servers: Sequence[Server], amounts: Sequence[float], others: Sequence[float]) -> list[_Turn]:
    """Returns a heap of servers. ``others``: decide between servers of the same amount."""
    names = (one.name for one in servers)
    found = list(zip(amounts, others, names, range(len(servers)), strict=True))
    heapify(found)
    return found


def _next(turns: list[_Turn], avoid: str, parts: Sequence[float]) -> int:
    """Returns the server with the fewest regions, one with another name where there is one; it has one more then."""
    aside: list[_Turn] = []
    while avoid and len(turns) > 1 and turns[0][2] == avoid:
        aside.append(heappop(turns))
    amount, other, name, number = turns[0]
    heapreplace(turns, (amount + parts[number], other, name, number))
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
