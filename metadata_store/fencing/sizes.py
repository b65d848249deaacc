"""Counts how big requests get, without encoding them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from metadata_store.port import Create, SetData, Write

OP_OVERHEAD: Final = 64
"""Bytes of an operation besides its path and data (header, lengths, version or default ACL list), rounded up."""


def op_bytes(op: Write) -> int:
    """Returns the bytes of one operation in a multi: an upper bound but for long ACL lists or non-ASCII paths."""
    size = len(op.path) + OP_OVERHEAD
    if isinstance(op, (SetData, Create)) and op.data is not None:
        size += len(op.data)
    return size


def write_bytes(ops: Iterable[Write]) -> int:
    """Returns the bytes of a multi of ``ops``."""
    return sum(map(op_bytes, ops))
