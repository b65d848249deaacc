"""The regions' domain of a daemon: claims the store, serves one term after the other, and stands by in between."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Final

from brokers.regions.listener import RegionListener
from controller.journal.journal import Journal
from controller.journal.segments import last_epoch_in
from controller.journal.term_journal import TermJournal
from controller.procedures.parking import Parking
from controller.procedures.requests import loop_ms
from controller.procedures.running import Entered
from controller.regions import loading
from controller.regions.claim import Opened, Opening
from controller.regions.clock import SteadyClock, Uptime, uptime
from controller.regions.dispatcher import DispatchLimits
from controller.regions.environment import Options
from controller.regions.metrics import RegionCounters
from controller.regions.restored import Seen, Serving
from controller.regions.term import RegionsTerm
from metadata_store.records.port import StoreFailed
from state_machines.procedures.transition import Transition
from state_machines.regions.model import Regions

log = logging.getLogger("regent.regions")

OLDER: Final = (
    "the store begins epoch {}, but the journal in {} has rows of epoch {}: the store is new, another one, or was "
    "restored from a copy, so numbers and tokens may repeat; see 'A store that was restored' in the runbook of "
    "regions, or move the files of that journal away where this is meant to be another store"
)

AGAIN_S: Final = 2.0
"""Pause after a store that failed."""
JOURNAL_S_MAX: Final = 1.0
"""Longest wait for the names of the journal's files: it only warns."""


class RegionsMode(StrEnum):
    """What the domain of a daemon does; exactly one holds."""

    STARTING = "starting"
    STANDBY = "standby"
    LOADING = "loading"
    ACTIVE = "active"
    SUSPENDED = "suspended"
    FAILING = "failing"
    STOPPED = "stopped"


class RegionsDomain:
    """Runs the domain until cancelled. ``open_store``: waits for the claim, and opens the store.

    ``journal``: of the daemon with this id. ``socket``: see :class:`Opening`.
    """

    def __init__(
        self,
        open_store: Callable[[Opening], Awaitable[Opened]],
        listener: RegionListener,
        options: Options,
        *,
        wall_ms: Callable[[], int],
        up: Callable[[], Uptime] = uptime,
        limits: DispatchLimits,
        placement: str,
        entered: Entered | None = None,
        journal: Journal | None = None,
        daemon: int = 0,
        counters: RegionCounters | None = None,
        socket: str = "",
    ) -> None:
        self._open = open_store
        self.listener = listener
        self._options = options
        self._wall_ms, self._up = wall_ms, up
        self._limits = limits
        self._placement = placement
        self._entered = entered
        self.journal = journal
        self._daemon = daemon
        self._socket = socket
        self.options = options
        self.counters = counters or RegionCounters()
        self.parking = Parking()
        self.failed = False
        """The latest term of this daemon ended by an error, and the next one of the store is its own."""
        self.term: RegionsTerm | None = None
        self._seen = Seen(lambda: loop_ms() / 1000)
        listener.seen, listener.told = self._seen.named, self._seen.told
        self.journal_epoch = 0
        """The highest epoch that the journal of this daemon had as its process began."""
        self.older = ""
        """Why the store of the first term since then is older than that journal; empty where it is not known to be."""
        self.mode = RegionsMode.STARTING
        self.why = "the listener is not bound yet"
        self.over = asyncio.Event()
        """Set by a stop: the process may cancel the run."""
        self.exit_code = 0

    async def begin(self) -> None:
        """Starts the journal, whose highest epoch is read before."""
        if self.journal is not None:
            self.journal_epoch = await _journal_epoch(self.journal)
            self.journal.start()

    def end(self) -> None:
        """Writes the last rows of the journal."""
        if self.journal is not None:
            self.journal.close()

    def stop(self) -> None:
        """Lets the process end: the run needs nothing before it is cancelled."""
        self.over.set()

    async def moves(self, _within_s: float) -> bool:
        """Returns True: the domain has no queue of its own, so it moves as long as the loop turns."""
        return True

    async def run(self) -> None:
        """Listens, and runs terms one after the other."""
        await self.listener.start()
        log.info("regions: listening on %s:%d, pid %d", self.listener.host, self.listener.port, os.getpid())
        try:
            while True:
                try:
                    await self._one_term()
                except (StoreFailed, OSError) as error:
                    self._become(RegionsMode.FAILING, str(error))
                    log.error("regions: the term ends: %s; the next one begins in %.0f s", error, AGAIN_S)
                except Exception as error:  # a fault of one domain does not end the other one of the process
                    self._become(RegionsMode.FAILING, f"a fault: {type(error).__name__}: {error}")
                    log.exception("regions: the term ends by a fault; the next one begins in %.0f s", AGAIN_S)
                await asyncio.sleep(AGAIN_S)
        finally:
            self._become(RegionsMode.STOPPED, "the daemon stops")
            await self.listener.stop()

    def _become(self, mode: RegionsMode, why: str) -> None:
        self.mode, self.why = mode, why
        if mode is not RegionsMode.ACTIVE:
            self.listener.prepare(term=mode is RegionsMode.LOADING)
        if mode is not RegionsMode.LOADING:
            self.failed = mode is RegionsMode.FAILING
        if mode in (RegionsMode.STANDBY, RegionsMode.STOPPED):
            what = f"the regions' domain of this daemon is {mode} ({why})"
            self.parking.refuse_early(f"{what}: send the request to the active one")

    def _waits(self, why: str) -> None:
        self._become(RegionsMode.STANDBY, why)

    def _claimed(self, store: str) -> None:
        """Enters that this daemon opens the store; while attempts fail, the last cause stays."""
        if self.mode is not RegionsMode.FAILING:
            self._become(RegionsMode.LOADING, f"it has the claim, and opens {store}")

    def _compare_journal(self, epoch: int) -> None:
        """Says, once a process, that the store is older than the journal: no epoch begins twice."""
        if self.journal is not None and epoch <= self.journal_epoch and not self.older:
            self.older = OLDER.format(epoch, self.journal.folder, self.journal_epoch)
            log.warning("regions: %s", self.older)

    def _moved(self, moved: Sequence[Transition]) -> None:
        self.counters.moved(moved)
        if self._entered is not None:
            self._entered(moved)

    async def _one_term(self) -> None:
        if self.mode is not RegionsMode.FAILING:
            self._become(RegionsMode.STANDBY, "it looks whether another daemon has the store")
        opened = await self._open(Opening(above := self._seen.above, self._waits, self._claimed, self._socket))
        model: Regions | None = None
        try:
            self._become(RegionsMode.LOADING, f"epoch {opened.epoch} reads the store")
            term = RegionsTerm(
                opened.store,
                opened.catalog,
                opened.epoch,
                self._options,
                wall_ms=self._wall_ms,
                limits=self._limits,
                placement=self._placement,
                entered=self._moved,
                journal=self.journal.term(self._daemon, opened.epoch, TermJournal)
                if self.journal is not None
                else None,
                counters=self.counters,
                leads=opened.leads,
                look=opened.look,
                suspended=opened.suspended,
                parking=self.parking,
                above=above,
                nodes=opened.nodes,
                steady=(clock := SteadyClock(self._wall_ms, self._up)),
            )
            model, term.env.shown_ms, term.complaint = term.env.model, clock.shown_ms, opened.complaint
            term.daemons = opened.daemons
            if opened.nodes is not None:
                opened.nodes.faults = self.counters.node_faults
            await term.load()
            self._seen.forget(above)
            self.term = term
            self.counters.terms += 1
            self._become(RegionsMode.ACTIVE, f"epoch {opened.epoch}")
            self._compare_journal(opened.epoch)
            self._seen.begin(_serving(term, opened))
            self.listener.serve(term.service)
            try:
                await term.run(opened.lost())
            finally:
                self.term = None
                self._seen.over()
                self.listener.resign()
                term.close(StoreFailed("the term of the regions' domain is over: try again"))
        finally:
            await opened.close()
            if model is not None:
                await loading.unload(model)


def shown(domain: RegionsDomain) -> tuple[RegionsMode, str]:
    """Returns the mode and why as operators see them: an active term that can store nothing for now is suspended."""
    if domain.term is not None and (why := domain.term.suspended()):
        return RegionsMode.SUSPENDED, why
    return domain.mode, domain.why


async def _journal_epoch(journal: Journal) -> int:
    """Returns the highest epoch that the journal has before this process writes to it; 0 where its disk stalls."""
    try:
        async with asyncio.timeout(JOURNAL_S_MAX):
            return await asyncio.to_thread(last_epoch_in, journal.folder)
    except (TimeoutError, OSError):
        return 0


def _serving(term: RegionsTerm, opened: Opened) -> Serving:
    """Describes a term to what judges the epochs and tokens that servers have seen."""
    engine, end = term.engine, term.manager.end
    return Serving(
        opened.epoch, term.env.former_number, lambda: engine.last_number, opened.look, opened.leads, term.copy.note, end
    )
