"""Journals of tests: kept in memory and audited as they grow, or on real files of a disk that fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from configs.journal_section import JournalSettings
from controller.journal.entries import Entry
from controller.journal.journal import J, Journal, encoded
from controller.journal.reader import CUT_SHORT, Gap, joined, parsed, read
from controller.kafka.journal.term_journal import KafkaJournal
from controller.kafka.metrics.values import Counters
from state_machines.journal.audit import Violation, judge
from state_machines.journal.events import Kind, Row

DAEMON = 1_000_001


class Book:
    """Keeps the entries of every term, as a daemon's journal does."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def term(self, ctl_id: int, epoch: int, of: type[J]) -> J:
        return of(self.entries.append, ctl_id, epoch)

    def rows(self) -> list[Row]:
        """Returns the rows as they are made, without JSON."""
        return [row for entry in self.entries for row in entry.rows()]

    def read(self) -> list[Row]:
        """Returns the rows as a reader of files gets them; only the ends of killed terms may be missing."""
        text = b"".join(data for entry in self.entries for _, data in encoded(entry))
        found: list[Row] = []
        for row in joined(parsed_rows(text)):
            if isinstance(row, Gap):
                assert row.why == CUT_SHORT, row
            else:
                found.append(row)
        return found

    def violations(self) -> list[Violation]:
        return list(judge(self.read()))


def parsed_rows(text: bytes) -> list[Row | Gap]:
    """Reads whole lines."""
    rows: list[Row | Gap] = []
    for line in text.splitlines():
        row = parsed(line)
        assert isinstance(row, Row), row
        rows.append(row)
    return rows


class OnDisk(Book):
    """A book that is a daemon's journal."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self.journal = journal

    def term(self, ctl_id: int, epoch: int, of: type[J]) -> J:
        return self.journal.term(ctl_id, epoch, of)

    def read(self) -> list[Row]:
        return [row for row in read(self.journal.folder) if isinstance(row, Row)]


class Disk:
    """Real files that take a number of bytes, and a wall clock that stands still until a test moves it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room: int | None = None
        self.now_s = 1e9
        self.sync_fails = False
        self.syncs = 0
        monkeypatch.setattr("controller.journal.segments.os.write", self.write)
        monkeypatch.setattr("controller.journal.segments.os.fdatasync", self.sync)

    def write(self, file: int, data: memoryview, _real: Any = os.write) -> int:
        if self.room is not None:
            if not self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            data = data[: self.room]
            self.room -= len(data)
        return int(_real(file, data))

    def sync(self, file: int, _real: Any = os.fdatasync) -> None:
        self.syncs += 1
        if self.sync_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        _real(file)


class Desk:
    """A journal without its thread: tests decide when it writes."""

    def __init__(self, folder: Path, disk: Disk | None = None, **settings: Any) -> None:
        self.counters = Counters()
        self.folder = folder
        fields: dict[str, Any] = {"segment_bytes": 1_048_576, "bytes_max": 2_097_152, "queue_rows_max": 1_000}
        clock: dict[str, Any] = {"wall": lambda: disk.now_s} if disk is not None else {}
        self.journal = Journal(folder, JournalSettings(**(fields | settings)), self.counters, **clock)

    def term(self, epoch: int = 1) -> KafkaJournal:
        return self.journal.term(DAEMON, epoch, KafkaJournal)

    def write(self, *, after_the_pause: bool = True) -> None:
        """Writes the queue as the thread does, by default with the pause after an error over."""
        self.journal._write(self.journal._taken(), last=after_the_pause)

    def found(self) -> tuple[list[str], list[Gap]]:
        """Reads the topics of all rows, and the gaps."""
        return found(self.folder)


def found(folder: Path) -> tuple[list[str], list[Gap]]:
    """Reads the topics of all rows (the kind of those without), and the gaps."""
    everything = list(read(folder))
    rows = [row.topic or row.kind for row in everything if isinstance(row, Row)]
    return rows, [gap for gap in everything if isinstance(gap, Gap)]


def record(term: KafkaJournal, *topics: str, size: int = 0) -> None:
    """Records a row for each topic, with a reason of ``size`` characters."""
    for topic in topics:
        term.event(Kind.TOPIC_CREATE, topic=topic, why="x" * size)
