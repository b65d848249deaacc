"""Journals that are kept in memory and judged as they grow."""

from __future__ import annotations

from controller.journal.batches import Entry, rows_of
from controller.journal.journal import encoded
from controller.journal.reader import CUT_SHORT, Gap, joined, parsed
from controller.journal.term_journal import TermJournal
from state_machines.journal.audit import Violation, judge
from state_machines.journal.events import Row


class Book:
    """Takes every term's entries, as a daemon's journal does."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def term(self, ctl_id: int, epoch: int) -> TermJournal:
        return TermJournal(self.entries.append, ctl_id, epoch)

    def rows(self) -> list[Row]:
        """As they are made, without going through JSON."""
        return [row for entry in self.entries for row in rows_of(entry)]

    def read(self) -> list[Row]:
        """As a reader of the files gets them; nothing is missing but the end of terms that were killed."""
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
    """The rows of whole lines."""
    rows: list[Row | Gap] = []
    for line in text.splitlines():
        row = parsed(line)
        assert isinstance(row, Row), row
        rows.append(row)
    return rows
