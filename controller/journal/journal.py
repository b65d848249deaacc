"""The journal's queue and the thread that writes it. Control wins: nothing here ever holds up the event loop.

Entries wait in a queue that is bounded by rows. The thread lets a burst of decisions pass first, since its work would
take turns with theirs, then makes rows, encodes and appends them some hundred at a time, and flushes the group to the
disk. What does not fit in the queue, or cannot be written, is counted and marked in the journal by one row.
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
from typing import Final

import msgspec

from configs.sections import JournalSettings
from controller.journal.batches import Entry, Lost, lost, rows_of
from controller.journal.segments import Bounds, Segments
from controller.journal.term_journal import TermJournal
from controller.metrics.counters import Counters

log = logging.getLogger("regent.journal")

QUIET_S: Final = 0.25
"""A burst is over when nothing was added for so long."""
BURST_S_MAX: Final = 1.0
"""After so long a burst is written although it goes on."""
SLICE_ROWS: Final = 250
"""Rows that are encoded in one call, which keeps the interpreter for about 0.2 ms."""
RETRY_S: Final = 5.0
"""Pause after an error of the disk."""
EXPIRE_S: Final = 3_600.0
"""The age of files is looked at as often, also while nothing is written."""
CLOSE_S_MAX: Final = 3.0
"""At a stop: longest wait for the disk."""
FULL: Final = "the queue was full"
DEFECT: Final = "a defect: the log of the daemon tells"


def folder_in(state: Path) -> Path:
    """Where the journal is, in a daemon's state directory."""
    return state / "events"


class Journal:
    """One per daemon: :meth:`term` begins a term's part, :meth:`close` writes what waits."""

    def __init__(
        self, folder: Path, settings: JournalSettings, counters: Counters, *, wall: Callable[[], float] = time.time
    ) -> None:
        self.folder = folder
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
        """Begins to write."""
        self._thread.start()

    def term(self, ctl_id: int, epoch: int) -> TermJournal:
        """The part of a term that begins."""
        return TermJournal(self.put, ctl_id, epoch)

    def put(self, entry: Entry) -> None:
        """Takes an entry, or what marks its loss where the queue is full. Any thread; never waits for the disk.

        An entry larger than the queue is taken if the queue is empty: its rows are in memory anyway.
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
        """Writes what waits and ends the thread; does not wait long for a disk that stands still."""
        self._closing.set()
        self._wake.set()
        self._thread.join(CLOSE_S_MAX)
        if self._thread.is_alive():
            log.error("the journal's disk stands still: its last rows are given up")

    # -- the thread

    def _run(self) -> None:
        while True:
            self._wake.wait(RETRY_S if self._owed else EXPIRE_S)
            self._let_pass()
            self._wake.clear()
            closing = self._closing.is_set()
            taken = self._taken()
            try:
                self._write(taken, last=closing)
            except Exception:
                log.exception("a defect in the journal: %d entries are lost", len(taken))
                self._segments.abandon()
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
        """Writes a group and flushes it, or owes all of it."""
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
            self._segments.abandon()
            self._owe(entries, f"it could not be written: {error.strerror or error}")
            self._fail(error)
            return
        self._counters.journal_rows += rows
        self._counters.journal_bytes = self._segments.bytes_on_disk
        self._owed = []
        self._recover()

    def _append(self, entry: Entry) -> int:
        """Appends the rows of an entry; returns how many."""
        seq, epoch, written = entry.seq, entry.head.ctl_epoch, 0
        for count, data in encoded(entry):
            self._segments.append(epoch, seq + written, data)
            written += count
        return written

    def _owe(self, entries: Iterable[Entry], why: str = "") -> None:
        """Rows that are lost: what marks them is written once the disk takes it."""
        owed: deque[Entry] = deque()
        for entry in entries:
            if not isinstance(entry, Lost):
                self._count_lost(entry)
            _merge(owed, lost(entry, why or self._failing))
        self._owed = [entry for entry in owed if isinstance(entry, Lost)]

    def _count_lost(self, entry: Entry) -> None:
        """Both threads count."""
        with self._lock:
            self._counters.journal_rows_lost += len(entry)

    def _fail(self, error: OSError) -> None:
        """Said once for as long as it lasts."""
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
    """The lines of an entry, some at a time: how many, and their bytes."""
    rows = rows_of(entry)
    while some := list(islice(rows, SLICE_ROWS)):
        yield len(some), _ENCODER.encode_lines(some)


_ENCODER: Final = msgspec.json.Encoder()


def _merge(queue: deque[Entry], gone: Lost) -> None:
    """One row marks rows that are lost in a row. What is in the queue is not changed: the thread may hold it."""
    before = queue[-1] if queue else None
    end = (before.head.ctl_epoch, before.seq + before.count) if isinstance(before, Lost) else None
    if isinstance(before, Lost) and end == (gone.head.ctl_epoch, gone.seq):
        queue[-1] = Lost(before.head, before.seq, before.moment, before.count + gone.count, before.why)
    else:
        queue.append(gone)
