"""Names the locks of region procedures: cluster -> namespace -> table -> region, and servers beside namespaces."""

from __future__ import annotations

from functools import lru_cache

from controller.regions.dispatcher import Key
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.regions.model import namespace_of


@lru_cache(maxsize=10_000)
def table(name: str) -> Resource:
    """Returns the queue of a table."""
    return Resource(Scope.TABLE, name, namespace_of(name))


def region(table_name: str, id_: int) -> Demand:
    """Demands a region: it alone, beside others of its table."""
    return Demand(table(table_name), exclusive=False, parts=(id_,))


def shared(table_name: str) -> Demand:
    """Demands that no change of the table is under way."""
    return Demand(table(table_name), exclusive=False)


def whole(table_name: str) -> Demand:
    """Demands a table and all its regions."""
    return Demand(table(table_name), exclusive=True)


def server(key: Key) -> Demand:
    """Demands one process of a server."""
    return Demand(Resource(Scope.SERVER, f"{key[0]},{key[1]}"), exclusive=True)


def namespace(name: str) -> Demand:
    """Demands a namespace and all its tables."""
    return Demand(Resource(Scope.NAMESPACE, name), exclusive=True)
