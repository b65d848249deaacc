"""Declares what the journal's queue holds: entries that are queued in constant time, whose rows are made later.

A domain has entries of its own, as subclasses of :class:`Entry`. They hold immutable values, so the writing thread can
read them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from controller.journal.moment import Head, Moment
from state_machines.journal.events import SCHEMA_VERSION, Kind, Row

log = logging.getLogger("regent.journal")


class Entry(Struct, frozen=True):
    """Rows of one term, from number ``seq`` on, that belong together. Its length is their number."""

    head: Head
    seq: int
    moment: Moment

    def __len__(self) -> int:
        raise NotImplementedError

    def rows(self) -> Iterator[Row]:
        """Yields the rows in the order of their numbers. Any thread."""
        raise NotImplementedError

    def log(self, hidden: Counter[str]) -> None:
        """Logs the lines of an entry that has some; ``hidden`` counts the events without one. Any thread."""

    def sum_up(self, hidden: Counter[str]) -> None:
        """Logs a line of what entries like this one have counted as hidden. Any thread."""


class Single(Entry, frozen=True):
    """One row, complete except for its head, number and time."""

    fields: dict[str, Any]

    def __len__(self) -> int:
        return 1

    def rows(self) -> Iterator[Row]:
        yield _row(self, self.fields)


class Lost(Entry, frozen=True):
    """Rows that will not be written; one row marks them."""

    count: int
    why: str

    def __len__(self) -> int:
        return self.count

    def rows(self) -> Iterator[Row]:
        yield _row(self, {"kind": Kind.UNRECORDED, "lost": self.count, "why": self.why})


def lost(entry: Entry, why: str) -> Lost:
    """Returns the mark of an entry that cannot be written."""
    return entry if isinstance(entry, Lost) else Lost(entry.head, entry.seq, entry.moment, len(entry), why)


def log_entries(entries: Iterable[Entry]) -> None:
    """Logs the lines of entries; a defect in one of them is logged, and costs its own lines alone."""
    hidden: Counter[str] = Counter()
    counted: Entry | None = None
    for entry in entries:
        before = len(hidden)
        try:
            entry.log(hidden)
        except Exception:
            log.exception("a defect in the journal: lines of %d changes are not logged", len(entry))
        if len(hidden) > before:
            counted = entry
    if counted is not None:
        counted.sum_up(hidden)


def _row(entry: Entry, fields: dict[str, Any]) -> Row:
    head, moment = entry.head, entry.moment
    common = (SCHEMA_VERSION, head.cluster, head.ctl_id, head.ctl_epoch, entry.seq, moment.ts_us, moment.mono_us)
    return Row(*common, **fields)
