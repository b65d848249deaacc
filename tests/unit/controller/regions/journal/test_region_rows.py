"""Rows of regions have a form that is made faster: what the journal stores of it is the same."""

from __future__ import annotations

from pathlib import Path

import msgspec

from controller.journal.journal import encoded
from controller.journal.term_journal import TermJournal
from controller.regions.journal.lines import TOGETHER_MAX
from state_machines.journal.events import RegionRow, Row
from tests.kit.journals import Book
from tests.kit.regions.term import stage


def test_the_fields_of_a_row_of_a_region_are_in_the_order_of_all_fields() -> None:
    fields = RegionRow.__struct_fields__
    assert [one for one in Row.__struct_fields__ if one in fields] == list(fields)


async def test_rows_are_stored_as_they_are_made(tmp_path: Path) -> None:
    book = Book()
    async with stage(tmp_path, lambda epoch: book.term(1, epoch, TermJournal)) as s:
        await s.join("kv-1")
        await s.create("few", 2)
        await s.create("many", TOGETHER_MAX + 1)
        await s.join("kv-2")
        await s.move("few", min(s.term.env.model.regions), "kv-2")
    stored = b"".join(data for entry in book.entries for _, data in encoded(entry))
    assert stored == msgspec.json.Encoder().encode_lines(book.rows())
    assert {RegionRow, Row} <= {type(row) for entry in book.entries for row in entry.stored()}
