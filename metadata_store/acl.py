"""Makes access control lists of znodes, and the identities of ZooKeeper's ``digest`` scheme."""

from __future__ import annotations

import base64
import hashlib
from typing import Final

from msgspec import Struct

READ: Final = 1
WRITE: Final = 2
CREATE: Final = 4
DELETE: Final = 8
ADMIN: Final = 16
ALL: Final = 31


class Acl(Struct, frozen=True, gc=False):
    """One entry: ``perms`` is a sum of READ, WRITE, CREATE, DELETE and ADMIN. CREATE and DELETE concern children."""

    perms: int
    scheme: str
    id: str


OPEN: Final = (Acl(ALL, "world", "anyone"),)
"""Any principal may do anything: ZooKeeper's and Kafka's default."""
CREATOR: Final = (Acl(ALL, "auth", ""),)
"""Only the identities that the creating session has proven."""
READABLE: Final = (*CREATOR, Acl(READ, "world", "anyone"))
"""The same, and any principal may read."""
SENSITIVE: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens")
"""Paths that begin so hold passwords or keys (``ZkData.SensitiveRootPaths``)."""
OLD_CONSUMERS: Final = "/consumers"


def default_acls(path: str, *, secured: bool) -> tuple[Acl, ...]:
    """Returns the list with which brokers create ``path`` (``ZkData.defaultAcls``), ``secured`` or not."""
    if not secured or path == OLD_CONSUMERS:
        return OPEN
    return CREATOR if path.startswith(SENSITIVE) else READABLE


def digest_id(user: str, password: str) -> str:
    """Returns the id of a user in the ``digest`` scheme, as an ACL holds it: ``user:base64(sha1(user:password))``."""
    hashed = hashlib.sha1(f"{user}:{password}".encode()).digest()  # noqa: S324 - the scheme's own hash
    return f"{user}:{base64.b64encode(hashed).decode()}"


def digest_acl(user: str, password: str, perms: int = ALL) -> Acl:
    """Returns an entry for one user of the ``digest`` scheme."""
    return Acl(perms, "digest", digest_id(user, password))
