"""The store of the regions' domain in a SQLite file, with the claim that a lock beside it is.

The kernel frees the lock with its process alone, so a daemon that is frozen keeps it. Others say since when it is
silent, and what ends that: no daemon takes a lock from a process that lives.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from controller.regions.claim import FIRST, LEASE_MS, ClaimLooks, Opening
from controller.regions.transport.nodes import Nodes
from metadata_store.catalog.rows import Catalog
from metadata_store.catalog.sqlite import SqliteCatalog
from metadata_store.records.claims import FileClaim, Holder, Locked, Other
from metadata_store.records.port import RecordStore, StoreFailed
from metadata_store.records.sqlite import SqliteRecords
from metadata_store.records.sqlite_watch import SqliteWatch

log = logging.getLogger("regent.regions")

CLAIM_S: Final = 0.2
"""Pause between attempts to claim the store, while another daemon has it."""
SILENT_S: Final = 10.0
"""Silence of the daemon with the claim from which the others name it: a load of a million regions takes half of it."""


class SqliteOpened:
    """An open store; see :class:`controller.regions.claim.Opened`."""

    def __init__(
        self, store: SqliteRecords, catalog: SqliteCatalog, claim: FileClaim, path: Path, lease_ms: int
    ) -> None:
        self.store: RecordStore = store
        self.catalog: Catalog = catalog
        self.epoch = store.epoch
        self.nodes: Nodes | None = None
        self._claim = claim
        self._watch = SqliteWatch(path, store.epoch, claim)
        self._looks = ClaimLooks(self._watch.look, lease_ms)

    @classmethod
    async def open(cls, path: Path, opening: Opening = FIRST, *, lease_ms: int = LEASE_MS) -> SqliteOpened:
        """Waits until no other daemon has the store, and opens it. ``lease_ms``: of servers."""
        path.parent.mkdir(parents=True, exist_ok=True)
        claim = await _claimed(path, opening)
        opening.claimed(str(path))
        try:
            rows = SqliteCatalog()
            store = await SqliteRecords.open(path, rows, opening.above.epoch)
        except BaseException:
            claim.release()
            raise
        return cls(store, rows.of(store), claim, path, lease_ms)

    def leads(self) -> bool:
        """Checks whether the claim was proven not long ago."""
        return self._looks.hold()

    def look(self) -> asyncio.Event:
        """Returns the event of the next look's end: it is set once a look that begins from now on is over."""
        return self._looks.ask()

    def suspended(self) -> str:
        """Returns nothing: a file has no lease."""
        return ""

    def complaint(self) -> str:
        """Returns nothing: the permissions of a file are the system's."""
        return ""

    async def daemons(self) -> Sequence[Holder]:
        """Returns nothing: daemons that stand by for a file name themselves nowhere."""
        return ()

    async def lost(self) -> None:
        """Looks at the claim again and again; raises ``StoreFailed``."""
        await self._looks.keep()

    async def close(self) -> None:
        """Closes the store, and gives the claim up."""
        self._looks.end()
        with suppress(StoreFailed):
            await self.store.close()
        await self._watch.close()
        self._claim.release()


async def _claimed(path: Path, opening: Opening) -> FileClaim:
    """Waits for the lock of the file that stands for the claim; another daemon may have it for long."""
    other: Other | None = None
    told: tuple[object, bool] | None = None
    while True:
        try:
            return FileClaim(path, opening.socket)
        except Locked:
            other = other or Other(path)
        silent_s = other.look()
        silent = bool(other.holder.pid) and silent_s > SILENT_S
        opening.waits(_why(other, silent_s if silent else 0))
        if told != (other.holder, silent):
            told = other.holder, silent
            say = log.warning if silent else log.info
            say("regions: %s: this one stands by at %s", _why(other, silent_s if silent else 0), path)
        await asyncio.sleep(CLAIM_S)


def _why(other: Other, silent_s: float) -> str:
    """Returns the process that has the store, and how the wait for one that does nothing ends."""
    found = other.holder
    if not silent_s:
        return f"{found} has the store{found.command}"
    end = f"'kill -9 {found.pid}'" if found.is_here else f"'kill -9 {found.pid}' on {found.host}"
    return (
        f"{found} has the store, and shows no sign of life for {silent_s:.0f} s: it is frozen or hangs, and keeps the "
        f"store until its process ends: {end} ends it, and so does systemd's watchdog where the unit has one"
    )
