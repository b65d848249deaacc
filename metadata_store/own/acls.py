"""Returns the ACL that a session gives a znode by its path, where the operation that creates it names none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from metadata_store.acl import OPEN, READ, READABLE, Acl, default_acls
from metadata_store.own.registry import Access, access_of

OwnAcls = Mapping[Access, tuple[Acl, ...]]
"""The lists of regent's own znodes; those without one get what brokers would give them."""
NONE: Final[OwnAcls] = {}


def given_acls(path: str, own: OwnAcls, *, secured: bool) -> tuple[Acl, ...]:
    """Returns the list of a new znode. ``secured``: whether other znodes are closed as those of brokers are."""
    access = access_of(path)
    if access is None:
        return default_acls(path, secured=secured)
    return own.get(access) or (READABLE if secured else OPEN)


def acls_below(root: str, own: OwnAcls, *, secured: bool) -> tuple[Acl, ...]:
    """Returns the list of new znodes below one of regent's own: a store names it, so that its bytes are weighed."""
    return given_acls(f"{root}/*", own, secured=secured)


def is_open(found: Sequence[Acl], wanted: Sequence[Acl]) -> bool:
    """Checks whether any client may do more than read, and than ``wanted`` permits."""
    return bool(_of_world(found) & ~(_of_world(wanted) | READ))


def _of_world(acls: Sequence[Acl]) -> int:
    perms = 0
    for acl in acls:
        if acl.scheme == "world":
            perms |= acl.perms
    return perms
