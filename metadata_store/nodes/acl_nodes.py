"""Reads Kafka's access control lists: all of them, and those that notifications name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from metadata_store.codecs.acl import decode_acls, decode_extended_change, decode_literal_change
from metadata_store.codecs.base import Malformed
from metadata_store.errors import Code
from metadata_store.port import Node, ZooKeeper
from metadata_store.reads import unreadable
from state_machines.admin_rules.acls import DENY_ALL, Acls, Entry, Key, Pattern, Resource

ROOTS: Final = {Pattern.LITERAL: "/kafka-acl", Pattern.PREFIXED: "/kafka-acl-extended/prefixed"}
CHANGES: Final = {"/kafka-acl-changes": decode_literal_change, "/kafka-acl-extended-changes": decode_extended_change}
"""Parents of the notifications, which brokers write and delete, and how each is read."""


Place = tuple[Pattern, Key]
"""A list, by the resource that it is about."""


class ReadAcls(Struct, frozen=True):
    """The lists, and the znodes that could not be understood: by those every request is denied.

    ``closed``: those of them that ZooKeeper refused to read.
    """

    acls: Acls
    malformed: list[Malformed]
    closed: set[Place]


def acl_path(place: Place) -> str:
    """Returns the znode of one list."""
    pattern, (resource, name) = place
    return f"{ROOTS[pattern]}/{resource}/{name}"


async def read_acls(zk: ZooKeeper) -> ReadAcls:
    """Reads all lists of topics and of the cluster."""
    acls, malformed, places = Acls(), list[Malformed](), list[Place]()
    for pattern, root in ROOTS.items():
        for resource in Resource:
            listed = await zk.children(f"{root}/{resource}")
            acls.found = acls.found or listed is not None
            places += [(pattern, (resource, name)) for name in listed[0]] if listed is not None else []
    closed = await read_lists(zk, acls, places, malformed.append)
    return ReadAcls(acls, malformed, closed)


async def read_lists(
    zk: ZooKeeper, acls: Acls, places: Iterable[Place], malformed: Callable[[Malformed], None]
) -> set[Place]:
    """Reads some lists into ``acls``, absent ones as empty. Returns those that ZooKeeper refused."""
    closed = set[Place]()
    wanted = list(dict.fromkeys(places))
    nodes = await zk.read_many([acl_path(place) for place in wanted])
    for place, node in zip(wanted, nodes, strict=True):
        found = _entries(acl_path(place), node)
        if isinstance(found, Malformed):
            malformed(found)
            found = DENY_ALL
            if isinstance(node, Code):
                closed.add(place)
        acls.put(*place, found)
    return closed


def _entries(path: str, node: Node | Code) -> tuple[Entry, ...] | Malformed:
    if isinstance(node, Node):
        return decode_acls(path, node.data)
    return unreadable(path, node) or ()


async def read_acl_changes(zk: ZooKeeper, after: dict[str, str]) -> tuple[set[Place], list[Malformed]]:
    """Reads the resources of notifications after those in ``after`` (name by parent), and advances ``after``."""
    places, malformed = set[Place](), list[Malformed]()
    for parent, decode in CHANGES.items():
        listed = await zk.children(parent)
        names = sorted(name for name in (listed[0] if listed is not None else ()) if name > after.get(parent, ""))
        found = await zk.read_many([f"{parent}/{name}" for name in names])
        for name, node in zip(names, found, strict=True):
            place = decode(f"{parent}/{name}", node.data) if isinstance(node, Node) else None
            if isinstance(place, Malformed):
                malformed.append(place)
            elif place is not None:
                places.add(place)
            if isinstance(node, Code):
                path = f"{parent}/{name}"
                malformed.append(unreadable(path, node) or Malformed(path, "is gone already"))
        after.update({parent: names[-1]} if names else {})
    return places, malformed
