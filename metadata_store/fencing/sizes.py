"""Counts how big requests get, without encoding them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from metadata_store.acl import Acl
from metadata_store.port import Create, SetData, Write

OP_OVERHEAD: Final = 64
"""Bytes of an operation besides its path and data (header, lengths, version or default ACL list), rounded up."""


ACL_OVERHEAD: Final = 12
"""Bytes of an entry of an ACL list besides its scheme and id."""


def op_bytes(op: Write) -> int:
    """Returns the bytes of one operation in a multi, at most."""
    path = op.path
    size = (len(path) if path.isascii() else len(path.encode())) + OP_OVERHEAD
    if isinstance(op, (SetData, Create)) and op.data is not None:
        size += len(op.data)
    if isinstance(op, Create) and op.acl:
        size += acl_bytes(op.acl)
    return size


def acl_bytes(acl: Iterable[Acl]) -> int:
    """Returns the bytes of an ACL list in a creation."""
    return sum(ACL_OVERHEAD + len(one.scheme) + len(one.id.encode()) for one in acl)


def write_bytes(ops: Iterable[Write]) -> int:
    """Returns the bytes of a multi of ``ops``."""
    return sum(map(op_bytes, ops))
