"""Runs the journal's queue and its writing thread. Control has priority: the journal never blocks the event loop.

Entries wait in a queue that is bounded by rows. The thread lets a burst of decisions pass first, because both share
the interpreter, then makes rows, encodes and appends them some hundred at a time, and flushes the group to the disk.
Entries that do not fit in the queue, or cannot be written, are counted and marked in the journal by one row.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from configs.journal_section import JournalSettings
from controller.journal.entries import Entry, Lost, log_entries, lost
from controller.journal.segments import Bounds, Segments
from controller.journal.term_journal import TermJournal
from controller.journal.topic import JournalTopic

log = logging.getLogger("regent.journal")

QUIET_S: Final = 0.25
"""Time without a new entry that ends a burst."""
BURST_S_MAX: Final = 1.0
"""Time after which a burst is written although it continues."""
SLICE_ROWS: Final = 250
"""Rows that are encoded in one call, which holds the interpreter for about 0.2 ms."""
RETRY_S: Final = 5.0
"""Pause after an error of the disk."""
EXPIRE_S: Final = 3_600.0
"""Interval between two checks of the files' age, also while nothing is written."""
CLOSE_S_MAX: Final = 3.0
"""Longest wait for the disk at a stop."""
FULL: Final = "the queue was full"
DEFECT: Final = "a defect: see the log of the daemon"


J = TypeVar("J", bound=TermJournal)


class JournalCounters(Protocol):
    """What a journal counts; ``journal_failing``: the error of its disk while that lasts."""

    journal_rows: int
    journal_rows_lost: int
    journal_bytes: int
    journal_failing: str


class Journal:
    """The journal of one daemon: :meth:`term` begins a term's part, :meth:`close` writes the queue.

    ``copies``: the topic that gets all rows that the files have.
    """

    def __init__(
        self,
        folder: Path,
        settings: JournalSettings,
        counters: JournalCounters,
        *,
        copies: JournalTopic | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self._copies = copies
        self._counters = counters
        self._rows_max = settings.queue_rows_max
        bounds = Bounds(
            settings.bytes_max, settings.age_days_max * 86_400.0, settings.segment_bytes, settings.segment_s_max
        )
        self._segments = Segments(folder, bounds, sync=settings.fsync == "group", clock=wall)
        self._lock = threading.Lock()
        self._queue: deque[Entry] = deque()
        self._queued = 0
        self._added = 0
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._owed: list[Lost] = []
        self._failing = ""
        self._retry_s = 0.0
        self._thread = threading.Thread(target=self._run, name="journal-writer", daemon=True)

    def start(self) -> None:
        """Starts the writing thread."""
        self._thread.start()

    def term(self, ctl_id: int, epoch: int, of: type[J]) -> J:
        """Creates the part of a term that begins, as the domain of the term writes it."""
        return of(self.put, ctl_id, epoch)

    def put(self, entry: Entry) -> None:
        """Queues an entry, or the mark of its loss where the queue is full. Any thread; never waits for the disk.

        An empty queue takes an entry that is larger than the queue, because its rows are in memory anyway.
        """
        with self._lock:
            if self._queued and self._queued + len(entry) > self._rows_max:
                self._counters.journal_rows_lost += len(entry)
                _merge(self._queue, lost(entry, FULL))
            else:
                self._queue.append(entry)
                self._queued += len(entry)
            self._added += 1
        if not self._wake.is_set():
            self._wake.set()

    def close(self) -> None:
        """Writes the queue and ends the thread; waits ``CLOSE_S_MAX`` for a stalled disk."""
        self._closing.set()
        self._wake.set()
        self._thread.join(CLOSE_S_MAX)
        if self._thread.is_alive():
            log.error("the journal in %s lost its last rows, because its disk stalls: check the disk", self.folder)
        if self._copies is not None:
            self._copies.close()

    # -- the thread

    def _run(self) -> None:
        while True:
            self._wake.wait(RETRY_S if self._owed else EXPIRE_S)
            self._let_pass()
            self._wake.clear()
            closing = self._closing.is_set()
            taken = self._taken()
            log_entries(taken)
            try:
                self._write(taken, last=closing)
            except Exception:
                log.exception("a defect in the journal: %d entries are lost", len(taken))
                self._abandon()
                self._owe([*self._owed, *taken], DEFECT)
            if closing and not self._queue:
                with contextlib.suppress(OSError):
                    self._segments.close()
                return

    def _let_pass(self) -> None:
        """Waits for the end of a burst, unless the queue fills up."""
        until_s = time.monotonic() + BURST_S_MAX
        added = -1
        while added != self._added and self._queued < self._rows_max // 2 and time.monotonic() < until_s:
            added = self._added
            if self._closing.wait(QUIET_S):
                break

    def _taken(self) -> deque[Entry]:
        with self._lock:
            taken, self._queue = self._queue, deque()
            self._queued = 0
        return taken

    def _write(self, group: Iterable[Entry], *, last: bool) -> None:
        """Writes and flushes a group; after an error keeps marks of its loss to write later."""
        entries: list[Entry] = [*self._owed, *group]
        if not last and self._failing and time.monotonic() < self._retry_s:
            self._owe(entries)
            return
        try:
            rows = sum(self._append(entry) for entry in entries)
            self._segments.sync()
            if not entries:
                self._segments.expire()
        except OSError as error:
            self._abandon()
            self._owe(entries, f"it could not be written: {error.strerror or error}")
            self._fail(error)
            return
        if self._copies is not None:
            self._copies.commit()
        self._counters.journal_rows += rows
        self._counters.journal_bytes = self._segments.bytes_on_disk
        self._owed = []
        self._recover()

    def _append(self, entry: Entry) -> int:
        """Appends the rows of an entry; returns their number."""
        seq, epoch, written = entry.seq, entry.head.ctl_epoch, 0
        for count, data in encoded(entry):
            self._segments.append(epoch, seq + written, data)
            if self._copies is not None:
                self._copies.stage(epoch, seq + written, count, data)
            written += count
        return written

    def _abandon(self) -> None:
        """Cuts off the lines that have not reached the disk."""
        self._segments.abandon()
        if self._copies is not None:
            self._copies.discard()

    def _owe(self, entries: Iterable[Entry], why: str = "") -> None:
        """Replaces entries by marks of their loss, which are written once the disk works again."""
        owed: deque[Entry] = deque()
        for entry in entries:
            if not isinstance(entry, Lost):
                self._count_lost(entry)
            _merge(owed, lost(entry, why or self._failing))
        self._owed = [entry for entry in owed if isinstance(entry, Lost)]

    def _count_lost(self, entry: Entry) -> None:
        """Counts lost rows under the lock, because both threads count."""
        with self._lock:
            self._counters.journal_rows_lost += len(entry)

    def _fail(self, error: OSError) -> None:
        """Records an error of the disk and logs it once while it lasts."""
        self._retry_s = time.monotonic() + RETRY_S
        self._counters.journal_bytes = self._segments.bytes_on_disk
        if not self._failing:
            log.error("the journal in %s cannot be written and has a gap from now on: %s", self.folder, error)
        self._failing = self._counters.journal_failing = str(error.strerror or error)

    def _recover(self) -> None:
        if self._failing:
            log.warning(
                "the journal in %s is written again; %d rows are lost since the start, its gaps are marked",
                self.folder,
                self._counters.journal_rows_lost,
            )
            self._failing = self._counters.journal_failing = ""


def encoded(entry: Entry) -> Iterator[tuple[int, bytes]]:
    """Yields the lines of an entry, some at a time: their number and their bytes."""
    rows = entry.stored()
    while some := list(islice(rows, SLICE_ROWS)):
        yield len(some), _ENCODER.encode_lines(some)


_ENCODER: Final = msgspec.json.Encoder()


def _merge(queue: deque[Entry], gone: Lost) -> None:
    """Adds a mark, merged with the one before it. Queued entries never change, because the thread may hold them."""
    before = queue[-1] if queue else None
    end = (before.head.ctl_epoch, before.seq + before.count) if isinstance(before, Lost) else None
    if isinstance(before, Lost) and end == (gone.head.ctl_epoch, gone.seq):
        queue[-1] = Lost(before.head, before.seq, before.moment, before.count + gone.count, before.why)
    else:
        queue.append(gone)
