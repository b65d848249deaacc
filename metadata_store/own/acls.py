"""Returns the ACL that a session gives a znode by its path, and judges the one that a znode has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from metadata_store.acl import ADMIN, CREATE, DELETE, OPEN, READ, READABLE, WRITE, Acl, default_acls, digest_id
from metadata_store.own.registry import Access, access_of

OwnAcls = Mapping[Access, tuple[Acl, ...]]
"""The lists of regent's own znodes; those without one get what brokers would give them."""
NONE: Final[OwnAcls] = {}
Identities = frozenset[tuple[str, str]]
NO_IDENTITY: Final[Identities] = frozenset()
ANYONE: Final = ("world", "anyone")
CERTIFICATE: Final = "x509"
"""Scheme of an identity that a TLS certificate proves: its subject."""


def given_acls(path: str, own: OwnAcls, *, secured: bool) -> tuple[Acl, ...]:
    """Returns the list of a new znode. ``secured``: whether other znodes are closed as those of brokers are."""
    access = access_of(path)
    if access is None:
        return default_acls(path, secured=secured)
    return own.get(access) or (READABLE if secured else OPEN)


def acls_below(root: str, own: OwnAcls, *, secured: bool) -> tuple[Acl, ...]:
    """Returns the list of new znodes below one of regent's own: a store names it, so that its bytes are weighed."""
    return given_acls(f"{root}/*", own, secured=secured)


def identities_of(credentials: str | None, sasl: str | None = None, subject: str | None = None) -> Identities:
    """Returns the identities that a session proves, by scheme and id. ``subject``: of its certificate."""
    found = set[tuple[str, str]]()
    if credentials is not None:
        found.add(("digest", digest_id(*credentials.split(":", 1))))
    if sasl is not None:
        found.add(("sasl", sasl.partition(":")[0]))
    if subject is not None:
        found.add((CERTIFICATE, subject))
    return frozenset(found)


def is_open(found: Sequence[Acl], wanted: Sequence[Acl], mine: Identities = NO_IDENTITY) -> bool:
    """Checks whether any client, or an own identity, may do more than read, and than ``wanted`` permits."""
    return any(_excess(one, wanted, mine) for one in found if _is_any(one) or _is_mine(one, mine))


def strangers(found: Sequence[Acl], wanted: Sequence[Acl], mine: Identities = NO_IDENTITY) -> list[Acl]:
    """Returns entries by which some other identity may do more than read, and than ``wanted`` permits."""
    return [one for one in found if not _is_any(one) and not _is_mine(one, mine) and _excess(one, wanted, mine)]


def _is_any(acl: Acl) -> bool:
    """Checks whether an entry is about any client: the world, or all addresses."""
    return acl.scheme == "world" or (acl.scheme == "ip" and acl.id.endswith("/0"))


def _is_mine(acl: Acl, mine: Identities) -> bool:
    return (acl.scheme, acl.id) in mine


def _excess(acl: Acl, wanted: Sequence[Acl], mine: Identities) -> int:
    """Returns the permissions of an entry beyond those that ``wanted`` gives its identity, or any client."""
    given = READ
    for one in wanted:
        if (one.scheme, one.id) in (ANYONE, (acl.scheme, acl.id)) or (one.scheme == "auth" and _is_mine(acl, mine)):
            given |= one.perms
    return acl.perms & ~given


def shell_text(acls: Sequence[Acl], mine: Identities) -> str:
    """Returns a list as ZooKeeper's shell takes it from a session that proves its own identities."""
    own, others = list[Acl](), list[Acl]()
    for one in acls:
        (own if one.scheme == "auth" or _is_mine(one, mine) else others).append(one)
    first = [f"auth::{perms_text(own[0].perms)}"] if own else []
    return ",".join(first + [f"{one.scheme}:{one.id}:{perms_text(one.perms)}" for one in others])


def perms_text(perms: int) -> str:
    """Returns permissions as ZooKeeper's shell writes them."""
    letters = ((CREATE, "c"), (DELETE, "d"), (READ, "r"), (WRITE, "w"), (ADMIN, "a"))
    return "".join(letter for bit, letter in letters if perms & bit)
