"""Checks permissions of the in-memory ZooKeeper, as the real server's ``checkACL`` and ``fixupACL``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from metadata_store.acl import Acl
from metadata_store.errors import Code

Identity = frozenset[tuple[str, str]]
"""Schemes and ids that a session has proven."""

_WORLD: Final = ("world", "anyone")
_SCHEMES: Final = frozenset({"world", "digest", "ip"})


class AccessRefused(Exception):
    """An operation is refused; never leaves the in-memory ZooKeeper."""

    def __init__(self, code: Code) -> None:
        self.code = code


def allowed(acls: Iterable[Acl], perms: int, identity: Identity) -> bool:
    """Checks whether an ACL list gives one of ``perms``."""
    for entry in acls:
        identified = (entry.scheme, entry.id)
        if entry.perms & perms and (identified == _WORLD or identified in identity):
            return True
    return False


def expanded(acls: Sequence[Acl], identity: Identity) -> tuple[Acl, ...]:
    """Returns the list as it is stored: the scheme ``auth`` becomes the session's own ids, which it must have."""
    stored: list[Acl] = []
    for entry in acls:
        if entry.scheme == "auth":
            own = [Acl(entry.perms, scheme, identified) for scheme, identified in sorted(identity) if scheme != "world"]
        else:
            own = [entry] if entry.scheme in _SCHEMES else []
        if not own:
            raise AccessRefused(Code.INVALID_ACL)
        stored += own
    if not stored:
        raise AccessRefused(Code.INVALID_ACL)
    return tuple(stored)


def masked(acls: Iterable[Acl]) -> list[Acl]:
    """Returns the list as a session without ADMIN sees it: without the hashes of passwords."""
    return [Acl(e.perms, e.scheme, e.id.partition(":")[0] + ":x") if e.scheme == "digest" else e for e in acls]
