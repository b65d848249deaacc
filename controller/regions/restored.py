"""Stores that the domain's store was restored from a copy, until nothing of the copy can do harm any more.

The term that goes above the copy may end within the lease for which it places nothing: the next one begins it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from controller.regions.environment import RegionsEnv
from metadata_store.catalog.rows import DropMark, MarkRow, PutMark
from metadata_store.records.port import NOTHING_SEEN, Above, RecordStore
from state_machines.procedures.record import Record

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


class Copy:
    """Notes in a store that it was restored from a copy. ``above``: what servers have seen of the one before."""

    def __init__(self, store: RecordStore, above: Above) -> None:
        self._store, self.above = store, above
        self.is_noted = False
        """Whether the store says so, and this term is to see its end."""

    async def begin(self, marks: Sequence[MarkRow]) -> bool:
        """Notes it, durably; returns whether the store was restored: a term before may have noted it."""
        if self.above != NOTHING_SEEN:
            await self._store.write((), (), (row(max(self.above.number, number(marks))),))
        self.is_noted = self.above != NOTHING_SEEN or stored(marks)
        return self.is_noted

    async def note(self, above: int) -> None:
        """Stores that this is a copy, and the number that the next term goes above: another daemon may begin it."""
        self.is_noted = False  # the next term is to see its end
        await self._store.write((), (), (row(above),))

    async def settle(self, env: RegionsEnv, live: Iterable[Record]) -> None:
        """Forgets the copy once a lease is over, and no open and no procedure of the copy is left."""
        if not self.is_noted or not env.restored_places or env.outdated:
            return
        if not any(one.pid <= env.former_number for one in live):
            await self._store.write((), (), (drop(),))
            self.is_noted = False
