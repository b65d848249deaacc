"""Decides when the active daemon takes a snapshot: after each election, at an interval, and by an operator's command.

One is taken at a time. The keeper runs beside the terms and refers to none while it waits, so that the model of an
ended term leaves memory.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from configs.journal_section import SnapshotsSettings
from controller.kafka.metrics.values import Counters
from controller.kafka.snapshots.taking import NotTaken, Taken, TermOver, take
from controller.kafka.term.term import Term
from state_machines.model.min_isr import UNKNOWN

log = logging.getLogger("regent.snapshots")

LOOK_S: Final = 0.5
READY_S_MAX: Final = 60.0
"""Longest wait after an election for brokers' requests and settings, which the snapshot should have."""
RETRY_S: Final = 3_600.0
"""Pause after a snapshot that failed, until one by itself is tried again."""
REMEMBERED_MAX: Final = 20
"""Snapshots that operators see."""


class Cause(StrEnum):
    """Names the cause of a snapshot."""

    ELECTION = "election"
    SCHEDULE = "schedule"
    COMMAND = "command"


class State(StrEnum):
    """Names the progress of a snapshot."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass
class Attempt:
    """One snapshot, from its request to its end. ``number`` counts those of this process."""

    number: int
    cause: Cause
    reason: str = ""
    principal: str = ""
    state: State = State.WAITING
    began_s: float = field(default_factory=time.time)
    took_ms: int | None = None
    taken: Taken | None = None
    err: str = ""


class SnapshotKeeper:
    """Takes the snapshots of one daemon. ``term``: returns the active term, None without one."""

    def __init__(
        self,
        term: Callable[[], Term | None],
        folder: Path,
        settings: SnapshotsSettings,
        counters: Counters,
        daemon: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder = folder
        self.attempts: deque[Attempt] = deque(maxlen=REMEMBERED_MAX)
        self._term = term
        self._settings = settings
        self._counters = counters
        self._daemon = daemon
        self._clock = clock
        self._requested: Attempt | None = None
        self._wake = asyncio.Event()
        self._numbers = 0
        self._of_epoch = 0
        self._seen_epoch = 0
        self._seen_s = 0.0
        self._due_s = 0.0
        self._err = ""
        """Of the choice of the next one; it is logged once."""

    def request(self, reason: str, principal: str) -> Attempt:
        """Requests a snapshot that begins from now on; returns the one that waits already where there is one."""
        if self._requested is None:
            self._requested = self._attempt(Cause.COMMAND, reason, principal)
            self._wake.set()
        return self._requested

    def _attempt(self, cause: Cause, reason: str = "", principal: str = "") -> Attempt:
        self._numbers += 1
        made = Attempt(self._numbers, cause, reason, principal)
        self.attempts.append(made)
        return made

    async def keep(self) -> None:
        """Takes snapshots until cancelled; a failure ends nothing."""
        while True:
            self._wake.clear()
            if (attempt := self._chosen()) is not None:
                await self._carry_out(attempt)
                continue
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _chosen(self) -> Attempt | None:
        """Returns the snapshot that is due. An error is logged, and the keeper goes on."""
        try:
            chosen = self._next(self._clock())
        except Exception as error:
            if self._err != (why := repr(error)):
                self._err = why
                log.exception("an error while the keeper of snapshots chose the next one; it tries again for ever")
            return None
        self._err = ""
        return chosen

    def _next(self, now_s: float) -> Attempt | None:
        """Returns the snapshot that is to be taken now."""
        term = self._term()
        if (asked := self._requested) is not None:
            self._requested = None
            return asked
        if term is None or term.stands_still or term.gate.why_ended is not None or not self._settings.enabled:
            return None
        epoch = term.cluster.epoch
        if epoch != self._seen_epoch:
            self._seen_epoch, self._seen_s = epoch, now_s
        if epoch != self._of_epoch:
            return self._attempt(Cause.ELECTION) if _ready(term) or now_s >= self._seen_s + READY_S_MAX else None
        return self._attempt(Cause.SCHEDULE) if now_s >= self._due_s else None

    async def _carry_out(self, attempt: Attempt) -> None:
        attempt.state, began_s = State.RUNNING, self._clock()
        try:
            taken = await self._take(attempt, began_s)
        except TermOver as over:
            attempt.state, attempt.err = State.FAILED, str(over)
            log.info("no snapshot was taken (%s): %s; the next active daemon takes one", attempt.cause.value, over)
        except NotTaken as error:
            self._fail(attempt, str(error))
        except Exception as error:
            log.exception("an error while a snapshot was taken")
            self._fail(attempt, f"{type(error).__name__}: {error}")
        else:
            attempt.taken, attempt.state = taken, State.DONE
            self._due_s = self._clock() + self._settings.interval_h * 3_600.0
            self._counters.snapshots += 1
            self._counters.snapshot_s = time.monotonic()
            if taken.written.left:
                log.warning(
                    "older snapshots exceed snapshots.files_max or snapshots.bytes_max (%s); the new one is whole. "
                    "Remedy: remove them by hand, or give the folder to the daemon's user",
                    taken.written.left,
                )

    async def _take(self, attempt: Attempt, began_s: float) -> Taken:
        """Takes the snapshot and records it in the journal of its term; raises :class:`NotTaken`."""
        term = self._term()
        if term is None:
            raise TermOver("this daemon does not hold the role any more")
        if attempt.cause is Cause.ELECTION or _ready(term):
            self._of_epoch = term.cluster.epoch
        try:
            taken = await take(term, self.folder, self._settings, attempt.cause.value, self._daemon)
        except NotTaken as error:
            _record(term, attempt, err=str(error))
            raise
        attempt.took_ms = round((self._clock() - began_s) * 1_000)
        written = taken.written
        _record(
            term,
            attempt,
            snapshot=written.name,
            partitions=written.partitions,
            broker_count=written.brokers,
            file_bytes=written.file_bytes,
            took_ms=attempt.took_ms,
            seq_first=taken.seq_first,
            seq_last=taken.seq_last,
        )
        return taken

    def _fail(self, attempt: Attempt, why: str) -> None:
        attempt.state, attempt.err = State.FAILED, why
        self._due_s = self._clock() + RETRY_S
        self._counters.snapshot_failures += 1
        log.error(
            "no snapshot could be written to %s: %s. Everything else goes on. Remedy: give the folder to the daemon's "
            "user and free space, or lower snapshots.bytes_max; the next one comes by itself, or by 'regent snapshot'",
            self.folder,
            why,
        )


def _record(term: Term, attempt: Attempt, **fields: object) -> None:
    """Writes the row of a snapshot; an ended term has had its last row."""
    if term.gate.why_ended is None:
        principal, why = attempt.principal or None, attempt.reason or None
        term.controller.journal.snapshot(reason=attempt.cause.value, principal=principal, why=why, **fields)


def _ready(term: Term) -> bool:
    """Checks whether the election is over for brokers, too, and their settings are known."""
    known = term.controller.adoption.settled.is_set() and term.cluster.min_isr is not UNKNOWN
    return known and term.idle.is_set() and term.channels.quiet
