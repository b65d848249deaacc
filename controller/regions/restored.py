"""Stores that the domain's store was restored from a copy, until nothing of the copy can do harm any more.

The term that goes above the copy may end within the lease for which it places nothing: the next one begins it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from metadata_store.catalog.rows import DropMark, MarkRow, PutMark

KIND: Final = "restored"
SUBJECT: Final = "domain"


def row(number: int) -> PutMark:
    """Returns the write that stores it. ``number``: that the numbers of this store are above, for its reader."""
    return PutMark(MarkRow(KIND, SUBJECT, str(number)))


def drop() -> DropMark:
    """Returns the write that ends it."""
    return DropMark(KIND, SUBJECT)


def number(marks: Iterable[MarkRow]) -> int:
    """Returns the number that a restored store is to be above, whichever daemon opens it; 0 for another store."""
    return max((int(one.value) for one in marks if one.kind == KIND and one.value.isdecimal()), default=0)


def stored(marks: Iterable[MarkRow]) -> bool:
    """Checks whether a catalog is that of a restored store."""
    return any(one.kind == KIND for one in marks)
