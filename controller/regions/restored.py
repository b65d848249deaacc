"""Notices that servers have seen more of a store than it has: then it was restored from a copy, and goes above that.

A server names the highest epoch and the highest token that it has seen as it connects. Where the store has lower ones,
servers would drop each response, and new opens would repeat tokens. So the term ends, and the next one begins above.

Only a server is believed, only while this daemon's claim is sound, within margins, and once a minute. So a server that
lies costs a failover a minute, and no number that could run out. The store says that it is a copy until nothing of the
copy can do harm: the term that goes above it may end within the lease for which it places nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from metadata_store.catalog.rows import DropMark, MarkRow, PutMark
from metadata_store.records.port import NOTHING_SEEN, Above, RecordStore, StoreFailed

log = logging.getLogger("regent.regions")

EPOCHS_AHEAD_MAX: Final = 100_000
"""Epochs above the store's that are believed: a day has 43,200, where a term ends every two seconds."""
NUMBERS_AHEAD_MAX: Final = 10_000_000
"""Numbers above the store's that are believed."""
WELCOMED_MAX: Final = 10_000
"""Processes of servers that a term remembers."""
NUMBERS_ROOM: Final = 1_000_000
"""Numbers that are left out besides: servers that have ended since may have had higher tokens."""
NOTE_S: Final = 5.0
"""Longest wait for the store to take what servers have seen: the term ends also without."""
AGAIN_S: Final = 60.0
"""Shortest time between two terms that end for this."""
FAR: Final = (
    "a server has seen epoch {} and token {}, the store has {} and {}: more than a copy explains, so it is not "
    "believed; look whether it belongs to another service, see 'A store that was restored' in the runbook of regions"
)
OLD: Final = (
    "a server has seen epoch {} and token {}, the store has {} and {}: it was restored from a copy, so this daemon "
    "begins a new term above both; see 'A store that was restored' in the runbook of regions"
)
SOON: Final = "the store is older than what this server has seen, and went above another server's only now: try again"
STALE: Final = "another daemon may be the active one by now"
MARK_KIND: Final = "restored"
MARK_SUBJECT: Final = "domain"


class Serving(NamedTuple):
    """The term that serves. ``number``: returns the highest number of the store; ``end`` ends it with an error.

    ``began``: the highest number of the store as the term began. ``note``: stores which number the next term goes
    above, of whichever daemon that is.
    """

    epoch: int
    began: int
    number: Callable[[], int]
    look: Callable[[], asyncio.Event]
    leads: Callable[[], bool]
    note: Callable[[int], Awaitable[None]]
    end: Callable[[StoreFailed], None]


class Seen:
    """Keeps what servers have seen until a term is above it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._serving: Serving | None = None
        self._store = NOTHING_SEEN
        self._above = NOTHING_SEEN
        self._ended_s = self._said_s = -AGAIN_S
        self._welcomed: set[str] = set()
        """Processes that may know the epoch of this term from this term itself."""

    def begin(self, serving: Serving) -> None:
        """Enters the term that serves from now on."""
        self._serving = serving
        self._welcomed.clear()

    def over(self) -> None:
        """Enters that the term is over; what servers name until the next one counts for that, too."""
        if self._serving is not None:
            self._store = Above(self._serving.epoch, self._serving.number())
        self._serving = None

    @property
    def above(self) -> Above:
        """Returns what the next term goes above."""
        return self._above

    def forget(self, above: Above) -> None:
        """Forgets ``above``: the epoch and tokens of a term are higher by now. What servers have named since stays."""
        if self._above == above:
            self._above = NOTHING_SEEN

    async def named(self, proof: str, epoch: int, token: int) -> str:
        """Takes what a server has seen; returns why that is not served now, empty where it is.

        ``proof``: of its process. One that knows this term's epoch, or a number that this term has reserved, as it
        comes for the first time has it from a term of the store that was replaced.
        """
        serving = self._serving
        store = self._store if serving is None else Above(serving.epoch, serving.number())
        knows = self._knows(proof)
        known = store.number if serving is None or knows else serving.began
        if epoch < store.epoch + knows and token <= known:
            self.told(proof)
            return ""
        if serving is None and self._above == NOTHING_SEEN:
            return ""  # the term that begins judges it
        if epoch > store.epoch + EPOCHS_AHEAD_MAX or token > store.number + NUMBERS_AHEAD_MAX:
            return self._far(FAR.format(epoch, token, *store))
        if serving is None:
            self._raise(epoch, max(token, store.number))
            return ""
        if self._clock() - self._ended_s < AGAIN_S:
            return SOON
        looked = serving.look()
        await looked.wait()
        if not serving.leads() or self._serving is not serving:
            return STALE
        if self._clock() - self._ended_s < AGAIN_S:
            return SOON  # another connection came meanwhile
        self._ended_s = self._clock()
        self._raise(epoch, max(token, store.number))
        why = OLD.format(epoch, token, store.epoch, known)
        try:
            with suppress(StoreFailed, TimeoutError):  # then this daemon alone knows it
                async with asyncio.timeout(NOTE_S):
                    await serving.note(self._above.number)
        finally:
            serving.end(StoreFailed(why))
        return why

    def told(self, proof: str) -> None:
        """Remembers that a process gets to know the epoch of this term."""
        if len(self._welcomed) < WELCOMED_MAX:
            self._welcomed.add(proof)

    def _knows(self, proof: str) -> bool:
        """Checks whether a process may have the epoch from this term."""
        return not proof or self._serving is None or proof in self._welcomed or len(self._welcomed) >= WELCOMED_MAX

    def _raise(self, epoch: int, token: int) -> None:
        self._above = Above(max(self._above.epoch, epoch), max(self._above.number, token + NUMBERS_ROOM))

    def _far(self, why: str) -> str:
        """Logs what is not believed from time to time."""
        if self._clock() - self._said_s >= AGAIN_S:
            self._said_s = self._clock()
            log.warning("regions: %s", why)
        return why


def noted(number: int) -> PutMark:
    """Returns the write by which a store says that it is a copy. ``number``: its next term has numbers above that."""
    return PutMark(MarkRow(MARK_KIND, MARK_SUBJECT, str(number)))


def _over() -> DropMark:
    """Returns the write that ends it."""
    return DropMark(MARK_KIND, MARK_SUBJECT)


def number_above(marks: Iterable[MarkRow]) -> int:
    """Returns the number that a restored store is to be above, whichever daemon opens it; 0 for another store."""
    return max((int(one.value) for one in marks if one.kind == MARK_KIND and one.value.isdecimal()), default=0)


def is_copy(marks: Iterable[MarkRow]) -> bool:
    """Checks whether a catalog is that of a restored store."""
    return any(one.kind == MARK_KIND for one in marks)


class Copy:
    """Notes in a store that it was restored from a copy. ``above``: what servers have seen of the one before."""

    def __init__(self, store: RecordStore, above: Above) -> None:
        self._store, self.above = store, above
        self.is_noted = False
        """Whether the store says so, and this term is to see its end."""

    async def begin(self, marks: Sequence[MarkRow]) -> bool:
        """Notes it, durably; returns whether the store was restored: a term before may have noted it."""
        if self.above != NOTHING_SEEN:
            await self._store.write((), (), (noted(max(self.above.number, number_above(marks))),))
        self.is_noted = self.above != NOTHING_SEEN or is_copy(marks)
        return self.is_noted

    async def note(self, above: int) -> None:
        """Stores that this is a copy, and the number that the next term goes above: another daemon may begin it."""
        self.is_noted = False  # the next term is to see its end
        await self._store.write((), (), (noted(above),))

    async def forget(self) -> None:
        """Forgets the copy, durably."""
        await self._store.write((), (), (_over(),))
        self.is_noted = False
