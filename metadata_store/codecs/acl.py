"""Decodes ``/kafka-acl`` and its like: access control lists, notifications of changes (Kafka ``ZkAclStore``)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from metadata_store.codecs.base import Malformed, guarded, require_version, strict
from state_machines.admin_rules.acls import Entry, Key, Pattern, Resource, canonical_host, canonical_operation


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


def decode_acls(path: str, data: bytes | None) -> tuple[Entry, ...] | Malformed:
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


def decode_literal_change(path: str, data: bytes | None) -> tuple[Pattern, Key] | Malformed | None:
    """Decodes ``Topic:name``; None for a type of resource that requests to a controller do not concern."""
    return guarded(path, lambda: _literal(data))


def _literal(data: bytes | None) -> tuple[Pattern, Key] | None:
    kind, colon, name = (data or b"").decode().partition(":")
    if not colon:
        raise ValueError(f"{kind!r} is not Type:name")
    return _named(Pattern.LITERAL, kind, name)


def decode_extended_change(path: str, data: bytes | None) -> tuple[Pattern, Key] | Malformed | None:
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
