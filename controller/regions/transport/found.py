"""Describes the znode of a region as it was read, and as it is to become."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from state_machines.regions.unassigned import Node, NodeState

OF_SERVERS: Final = frozenset({NodeState.CLOSING, NodeState.CLOSED})
"""States of znodes that servers have created: where these have an ACL, the daemon may only delete them."""


class Found(NamedTuple):
    """What a znode held when it was read. ``node`` None: it cannot be read. ``version``: for the next write."""

    node: Node | None
    version: int


class Wanted(NamedTuple):
    """What a znode is to become. ``node`` None: it goes. ``done``: called once that is durable."""

    node: Node | None
    done: Callable[[], None]


Changed = Callable[[int, Found | None], None]
"""Takes a region and what its znode holds by now; None: there is none. It must not wait."""
Judge = Callable[[int, Found | None, Wanted], bool]
"""Takes a region, what its znode holds and the wanted write; returns whether the daemon may still write that."""


def is_opened(found: Found | None) -> bool:
    """Checks whether a znode has the answer to an open."""
    return found is not None and found.node is not None and found.node.state is NodeState.OPENED


def is_of_server(found: Found) -> bool:
    """Checks whether a server, or a stranger, has created a znode."""
    return found.node is None or found.node.state in OF_SERVERS
