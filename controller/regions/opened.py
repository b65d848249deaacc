"""Declares an open store of the regions' domain with its claim, and one attempt to open it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from metadata_store.catalog.rows import Catalog
from metadata_store.records.port import NOTHING_SEEN, Above, RecordStore


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

    async def lost(self) -> None:
        """Looks at the claim again and again; raises ``StoreFailed`` once another daemon may have the store."""

    async def close(self) -> None:
        """Closes the store, and gives the claim up."""
