"""Declares an open store with its claim, and proves again and again that the claim is this daemon's own.

A claim can be lost without a word. Its lock was removed, its file was replaced, its znode was deleted, or the file
system does not lock. Another daemon then has the store, and writes alone would notice. So a server gets a response only
after a look at the claim that began once its request was here. The look comes before the next daemon's claim, and that
daemon waits a full lease from its own begin. One look serves all requests that came before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from configs.regions_section import RegionsSettings
from controller.process.clock import boottime_s
from controller.regions.transport.nodes import Nodes
from metadata_store.catalog.rows import Catalog
from metadata_store.records.claims import Holder
from metadata_store.records.port import NOTHING_SEEN, Above, RecordStore

LEASE_MS: Final[int] = RegionsSettings.model_fields["lease_ms"].default
LOOKS_PER_LEASE: Final = 8
"""Looks at the claim during one lease of a server, where no request asks for one."""
LOOKS_MISSED_MAX: Final = 3
"""Looks that may be due before the claim counts as doubtful: a disk that hangs proves nothing."""


def _nothing(_: str) -> None:
    """Drops a text."""


class Opening(NamedTuple):
    """One attempt to open the store.

    ``above``: the epoch and the number that servers have seen, where the store had lower ones. ``waits`` gets why this
    daemon stands by, again and again; ``claimed`` gets a path once this daemon has the claim, and opens the store.
    ``socket``: where this daemon's operators send requests; daemons that stand by name it.
    """

    above: Above = NOTHING_SEEN
    waits: Callable[[str], None] = _nothing
    claimed: Callable[[str], None] = _nothing
    socket: str = ""


FIRST: Final = Opening()
"""The first attempt, without a reader of its texts."""


class Opened(Protocol):
    """An open store that this daemon has claimed."""

    store: RecordStore
    catalog: Catalog
    epoch: int
    nodes: Nodes | None
    """Znodes of regions in transition, where servers answer by these."""

    def leads(self) -> bool:
        """Checks whether no other daemon can have the store, as far as the latest look at the claim says."""
        ...

    def look(self) -> asyncio.Event:
        """Returns the event of the next look's end, which :meth:`leads` takes into account."""
        ...

    def suspended(self) -> str:
        """Returns why nothing can be written or granted for now, and until when; empty while it can."""
        ...

    def complaint(self) -> str:
        """Returns the faults of the permissions of the store, with the remedy; empty where nothing is."""
        ...

    async def daemons(self) -> Sequence[Holder]:
        """Returns the daemons that stand by for the store, and name themselves."""
        ...

    async def lost(self) -> None:
        """Looks at the claim again and again; raises ``StoreFailed`` once another daemon may have the store."""

    async def close(self) -> None:
        """Closes the store, and gives the claim up."""


class ClaimLooks:
    """Looks at a claim. ``look`` returns once the claim is proven, and raises ``StoreFailed`` where it is lost.

    ``clock``: seconds; it counts through a freeze of the process.
    """

    def __init__(
        self, look: Callable[[], Awaitable[None]], lease_ms: int, clock: Callable[[], float] = boottime_s
    ) -> None:
        self._look, self._clock = look, clock
        self._pause_s = lease_ms / 1000 / LOOKS_PER_LEASE
        self._proven_s = clock()
        self._over = False
        self._next = asyncio.Event()
        self._wanted = asyncio.Event()

    def begin(self) -> None:
        """Counts a claim that was won just now as proven."""
        self._proven_s = self._clock()

    def hold(self) -> bool:
        """Checks whether the claim is this daemon's, by the latest look, and that look was not long ago."""
        return not self._over and self._clock() - self._proven_s < LOOKS_MISSED_MAX * self._pause_s

    def ask(self) -> asyncio.Event:
        """Returns what is set once a look that begins from now on is over, or none comes any more."""
        self._wanted.set()
        return self._next

    async def keep(self) -> None:
        """Looks until cancelled; raises the ``StoreFailed`` of the first look that fails."""
        try:
            while True:
                self._wanted.clear()
                asked, self._next = self._next, asyncio.Event()
                began_s = self._clock()
                try:
                    await self._look()
                except BaseException:
                    self._over = True
                    asked.set()
                    raise
                self._proven_s = began_s
                asked.set()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._pause_s):
                        await self._wanted.wait()
        finally:
            self.end()

    def end(self) -> None:
        """Ends the proofs: no claim is proven any more, and no request waits."""
        self._over = True
        self._next.set()
