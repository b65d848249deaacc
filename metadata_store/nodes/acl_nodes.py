"""Reads and decodes Kafka's access control lists: all of them, and those that notifications name (``ZkAclStore``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from metadata_store.codecs.base import MalformedNode, guarded, require_version, strict
from metadata_store.errors import Code
from metadata_store.port import Node, ZooKeeper
from metadata_store.reads import unreadable
from state_machines.admin_rules.acls import (
    DENY_ALL,
    Acls,
    Entry,
    Key,
    Pattern,
    Resource,
    canonical_host,
    canonical_operation,
)


class _Entry(Struct):
    principal: str
    permissionType: str  # noqa: N815
    operation: str
    host: str


class _Acls(Struct):
    version: int
    acls: list[_Entry]


class _Change(Struct):
    version: int
    resourceType: str  # noqa: N815
    name: str
    patternType: str  # noqa: N815


_RESOURCES: Final = {resource.upper(): resource for resource in Resource}
_PERMISSIONS: Final = {"ALLOW": True, "DENY": False}
_decode_acls = strict(_Acls)
_decode_change = strict(_Change)


def decode_acls(path: str, data: bytes | None) -> tuple[Entry, ...] | MalformedNode:
    """Decodes the entries of one resource's list."""
    return guarded(path, lambda: _acls(data))


def _acls(data: bytes | None) -> tuple[Entry, ...]:
    found = _decode_acls(data)
    require_version(found.version, (1,))
    return tuple(map(_line, found.acls))


def _line(one: _Entry) -> Entry:
    """Decodes an entry: Kafka writes ``Allow`` and ``ClusterAction`` and reads any case (``SecurityUtils``)."""
    allows = _PERMISSIONS.get(one.permissionType.upper())
    if allows is None:
        raise ValueError(f"permission type {one.permissionType!r} is neither Allow nor Deny")
    if not one.operation.isalpha():
        raise ValueError(f"{one.operation!r} is no operation")
    operation = canonical_operation(one.operation, allows=allows)
    return Entry(one.principal, canonical_host(one.host), operation, allows)


def decode_literal_change(path: str, data: bytes | None) -> tuple[Pattern, Key] | MalformedNode | None:
    """Decodes ``Topic:name``; None for a type of resource that requests to a controller do not concern."""
    return guarded(path, lambda: _literal(data))


def _literal(data: bytes | None) -> tuple[Pattern, Key] | None:
    kind, colon, name = (data or b"").decode().partition(":")
    if not colon:
        raise ValueError(f"{kind!r} is not Type:name")
    return _named(Pattern.LITERAL, kind, name)


def decode_extended_change(path: str, data: bytes | None) -> tuple[Pattern, Key] | MalformedNode | None:
    """Decodes the same from JSON, for prefixes."""
    return guarded(path, lambda: _extended(data))


def _extended(data: bytes | None) -> tuple[Pattern, Key] | None:
    found = _decode_change(data)
    require_version(found.version, (1,))
    return _named(Pattern(found.patternType.lower()), found.resourceType, found.name)


def _named(pattern: Pattern, kind: str, name: str) -> tuple[Pattern, Key] | None:
    """Returns the list's resource: notifications have ``TOPIC`` where its path has ``Topic``; Kafka reads either."""
    resource = _RESOURCES.get(kind.upper())
    return (pattern, (resource, name)) if resource is not None else None


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
    malformed: list[MalformedNode]
    closed: set[Place]


def acl_path(place: Place) -> str:
    """Returns the znode of one list."""
    pattern, (resource, name) = place
    return f"{ROOTS[pattern]}/{resource}/{name}"


async def read_acls(zk: ZooKeeper) -> ReadAcls:
    """Reads all lists of topics and of the cluster."""
    acls, malformed, places = Acls(), list[MalformedNode](), list[Place]()
    for pattern, root in ROOTS.items():
        for resource in Resource:
            listed = await zk.children(f"{root}/{resource}")
            acls.found = acls.found or listed is not None
            places += [(pattern, (resource, name)) for name in listed[0]] if listed is not None else []
    closed = await read_lists(zk, acls, places, malformed.append)
    return ReadAcls(acls, malformed, closed)


async def read_lists(
    zk: ZooKeeper, acls: Acls, places: Iterable[Place], malformed: Callable[[MalformedNode], None]
) -> set[Place]:
    """Reads some lists into ``acls``, absent ones as empty. Returns those that ZooKeeper refused."""
    closed = set[Place]()
    wanted = list(dict.fromkeys(places))
    nodes = await zk.read_many([acl_path(place) for place in wanted])
    for place, node in zip(wanted, nodes, strict=True):
        found = _entries(acl_path(place), node)
        if isinstance(found, MalformedNode):
            malformed(found)
            found = DENY_ALL
            if isinstance(node, Code):
                closed.add(place)
        acls.put(*place, found)
    return closed


def _entries(path: str, node: Node | Code) -> tuple[Entry, ...] | MalformedNode:
    if isinstance(node, Node):
        return decode_acls(path, node.data)
    return unreadable(path, node) or ()


async def read_acl_changes(zk: ZooKeeper, after: dict[str, str]) -> tuple[set[Place], list[MalformedNode]]:
    """Reads the resources of notifications after those in ``after`` (name by parent), and advances ``after``."""
    places, malformed = set[Place](), list[MalformedNode]()
    for parent, decode in CHANGES.items():
        listed = await zk.children(parent)
        names = sorted(name for name in (listed[0] if listed is not None else ()) if name > after.get(parent, ""))
        found = await zk.read_many([f"{parent}/{name}" for name in names])
        for name, node in zip(names, found, strict=True):
            place = decode(f"{parent}/{name}", node.data) if isinstance(node, Node) else None
            if isinstance(place, MalformedNode):
                malformed.append(place)
            elif place is not None:
                places.add(place)
            if isinstance(node, Code):
                path = f"{parent}/{name}"
                malformed.append(unreadable(path, node) or MalformedNode(path, "is gone already"))
        after.update({parent: names[-1]} if names else {})
    return places, malformed
