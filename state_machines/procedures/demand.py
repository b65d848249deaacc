"""Lists the locks that a procedure demands, by level: cluster -> namespace -> topic or table -> partition or region.

Servers are beside namespaces, below the cluster. A lock implies a shared lock on everything above its resource.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import IntEnum
from typing import Final, NamedTuple


class Scope(IntEnum):
    """Kinds of resources that have a queue. The value is the lane: a lower one is polled first."""

    CLUSTER = 0
    SYSTEM = 1
    """Topics or tables that others depend on, such as the catalog."""
    SERVER = 2
    NAMESPACE = 3
    TOPIC = 4
    TABLE = 5


class Resource(NamedTuple):
    """Names an entity. ``namespace``: of a topic or table, empty where there is none."""

    scope: Scope
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.scope.name.lower(), self.namespace, self.name)))


class Demand(NamedTuple):
    """Describes the locks of a procedure while it runs, all or nothing.

    ``resource``: its queue, locked ``exclusive`` or shared. ``parts``: its partitions or regions, each of them locked
    exclusively. ``also``: demands on further topics, tables or servers, which have no further ones themselves.
    """

    resource: Resource
    exclusive: bool
    parts: tuple[Hashable, ...] = ()
    also: tuple[Demand, ...] = ()


UPPER: Final = frozenset({Scope.CLUSTER, Scope.NAMESPACE})
"""Scopes of resources that others are below."""
CLUSTER: Final = Resource(Scope.CLUSTER)
