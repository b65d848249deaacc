"""Models Kafka's access control lists and judges whether they allow an operation (``AclAuthorizer.authorize``)."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct, field

ANYTHING: Final = "*"
"""A wildcard: every name of a literal resource, or every host."""
ANY_PRINCIPAL: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The only name that a resource of type Cluster has."""


class Operation(StrEnum):
    """An operation on a resource, as znodes name it."""

    ALL = "All"
    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    CLUSTER_ACTION = "ClusterAction"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"


_UNUSED: Final = ("IdempotentWrite", "CreateTokens", "DescribeTokens", "TwoPhaseCommit")
"""Operations that Kafka knows and that no request to a controller needs."""
_NAMES: Final = {name.upper(): name for name in (*map(str, Operation), *_UNUSED)}


def canonical_operation(name: str, *, allows: bool) -> str:
    """Returns the operation that an entry names, in any case of its letters (``AclOperation``).

    A denial of an unknown operation denies every operation: what it was to prevent cannot be known.
    """
    return _NAMES.get(name.upper()) or (name if allows else Operation.ALL)


class Resource(StrEnum):
    """The types of resources that requests to a controller concern."""

    TOPIC = "Topic"
    CLUSTER = "Cluster"


class Pattern(StrEnum):
    """The kinds of names of resources."""

    LITERAL = "literal"
    PREFIXED = "prefixed"


_IMPLIED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
_ALLOWING: Final = {str(one): frozenset(map(str, (one, "All", *_IMPLIED_BY.get(one, ())))) for one in Operation}
"""Permissions of which each allows the operation. A denial implies no other one."""


class Entry(Struct, frozen=True, gc=False):
    """One entry of a list. ``operation`` is one of :class:`Operation` or another of Kafka's; ``host`` is canonical."""

    principal: str
    host: str
    operation: str
    allows: bool


DENY_ALL: Final = (Entry(ANY_PRINCIPAL, ANYTHING, Operation.ALL, False),)
"""Stands for a list that cannot be understood: it may have denied any operation to any principal."""

Key = tuple[Resource, str]


class Acls(Struct):
    """All lists of a cluster. ``found``: whether their parent znodes exist, so that an authorizer was used."""

    literal: dict[Key, tuple[Entry, ...]] = field(default_factory=dict)
    prefixed: dict[Key, tuple[Entry, ...]] = field(default_factory=dict)
    found: bool = False
    sizes: Counter[int] = field(default_factory=Counter)
    """Number of prefixes by length: other lengths need no look-up."""

    def put(self, pattern: Pattern, key: Key, entries: tuple[Entry, ...]) -> None:
        """Replaces a list; one without entries goes."""
        if pattern is Pattern.LITERAL:
            _put(self.literal, key, entries)
        elif change := _put(self.prefixed, key, entries):
            self.sizes[len(key[1])] += change
            self.sizes += Counter()  # drops sizes without a prefix


def _put(lists: dict[Key, tuple[Entry, ...]], key: Key, entries: tuple[Entry, ...]) -> int:
    """Replaces a list; returns by how much the number of lists grew."""
    before = len(lists)
    if entries:
        lists[key] = entries
    else:
        lists.pop(key, None)
    return len(lists) - before


def canonical_host(host: str) -> str:
    """Returns one spelling of each address, as IPv6 has many; text that is no address stays as it is."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).compressed


def unreadable() -> Acls:
    """Stands for all lists where they cannot be read: every request is denied."""
    return Acls({(resource, ANYTHING): DENY_ALL for resource in Resource}, found=True)


def allowed(
    acls: Acls, principal: str, host: str, operation: Operation, resource: Resource, name: str, *, open_: bool = False
) -> bool:
    """Checks whether ``principal`` may perform the operation from ``host`` (canonical).

    All lists that match the resource count together: that of its literal name, of ``*``, and of each prefix. One denial
    outweighs every permission. ``open_``: the result where no list matches the resource
    (``allow.everyone.if.no.acl.found``).
    """
    entries = _matching(acls, resource, name)
    granted = False
    for one in entries:
        if (one.principal == principal or one.principal == ANY_PRINCIPAL) and (
            one.host == host or one.host == ANYTHING
        ):
            if one.allows:
                granted = granted or one.operation in _ALLOWING[operation]
            elif one.operation == operation or one.operation == "All":
                return False
    return granted if entries else open_


def _matching(acls: Acls, resource: Resource, name: str) -> list[Entry]:
    found = [*acls.literal.get((resource, name), ()), *acls.literal.get((resource, ANYTHING), ())]
    for size in acls.sizes:
        if size <= len(name):
            found += acls.prefixed.get((resource, name[:size]), ())
    return found
