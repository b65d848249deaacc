"""Says how the servers that get regions, and their weights, differ between two moments: that is why a daemon looks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from controller.process.wording import named
from controller.regions.dispatcher import Key
from state_machines.regions.model import Regions
from state_machines.regions.states import ServerState

NAMED_MAX: Final = 3
"""Changes that one sentence names; the others are counted."""


class Membership(Struct, frozen=True, gc=False):
    """The processes of servers that are no crashed ones. ``weights``: of those that get regions.

    A process counts from its registration on, also while it has not come to this daemon yet: no failover changes that.
    """

    processes: frozenset[Key]
    weights: Mapping[Key, float]


def membership(model: Regions) -> Membership:
    """Returns the present servers."""
    servers = [one for one in model.servers.values() if one.state is ServerState.ONLINE]
    able = (one for one in servers if not (one.leaving or model.marks.is_cordoned(one.name)))
    weights = {one.key: model.marks.weight(one.name) for one in able}
    return Membership(frozenset(one.key for one in servers), weights)


def difference(before: Membership, after: Membership) -> str:
    """Names the changes between two moments in a sentence; empty where there is none."""
    return named(_changes(before, after), NAMED_MAX)


def _changes(before: Membership, after: Membership) -> Iterator[str]:
    """Yields changes, those first that have a server get regions."""
    new = sorted(after.weights.keys() - before.weights.keys())
    joined = ((one, after.weights[one]) for one in new if one not in before.processes)
    for one, weight in joined:
        yield f"server {_said(one)} has joined{f' with weight {weight:g}' if weight != 1 else ''}"
    yield from (f"server {_said(one)} gets regions again" for one in new if one in before.processes)
    for one in sorted(before.weights.keys() & after.weights.keys()):
        if before.weights[one] != after.weights[one]:
            yield f"the weight of server {one[0]} is {after.weights[one]:g}"
    old = sorted(before.weights.keys() - after.weights.keys())
    yield from (f"server {_said(one)} gets no regions any more" for one in old if one in after.processes)
    yield from (f"server {_said(one)} has gone" for one in old if one not in after.processes)


def _said(key: Key) -> str:
    return f"{key[0]},{key[1]}"
