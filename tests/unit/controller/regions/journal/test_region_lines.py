"""What the log costs: no line is made that the loggers leave out, and each message is read once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.journal.entries import Line
from controller.regions.journal import lines
from controller.regions.journal.journal import REMEMBERED_BYTES_MAX, Remembered
from regent_agent import protocol
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.procedures.transition import Members
from tests.kit.regions.term import stage

CRASHED = {"CRASHED", "FENCED", "RELEASED"}
"""States of a process that has crashed, of which warnings tell."""


async def test_a_log_of_warnings_alone_has_all_of_them_and_no_other_line_is_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, "regent")
    made: list[Line] = []
    make: Any = lines._lines

    def recorded(*of: Any) -> Iterator[Line]:
        found = list(make(*of))
        made.extend(found)
        return iter(found)

    monkeypatch.setattr(lines, "_lines", recorded)
    async with stage(tmp_path) as s:
        member = await s.join("kv-1", 1795)
        member.fails = [protocol.FAILED_OPEN]
        await s.create("kv", 1)
        await s.join("kv-2", 1796)
        member.kill()
        await s.until(lambda: len(s.term.env.model.servers) == 1)
    assert {one.level for one in made} == {logging.WARNING}
    texts = [one.text for one in made]
    assert [one for one in caplog.messages if one in texts] == texts
    assert sum("reported failed_open: the disk is full" in one for one in texts) == 1
    assert {state for one in texts for state in CRASHED if f"server kv-1,1795 is {state} " in one} == CRASHED
    assert sum("OPEN -> ABNORMALLY_CLOSED" in one for one in texts) == 1


class Counting:
    """Names that count what they are asked."""

    def __init__(self) -> None:
        self.asked = 0

    def step_name(self, record: Record, step: int) -> str:
        return ""

    def lock_names(self, record: Record) -> tuple[str, ...]:
        self.asked += 1
        return (f"{record.kind} {len(record.data)}",)

    def members(self, record: Record) -> Members:
        return Members(table=f"{record.kind} of {len(record.data)}")


def test_messages_are_read_once_also_where_a_procedure_is_named_by_a_former_one() -> None:
    counting = Counting()
    names = Remembered(counting)
    begun = Record(7, "assign", State.RUNNABLE, 0, 1, 1, data=b"1")
    sent = Record(7, "assign", State.RUNNABLE, 1, 1, 1, data=b"1 at kv-1")
    for _ in range(3):
        assert (names.members(begun).table, names.lock_names(begun)) == ("assign of 1", ("assign 1",))
        assert (names.members(sent).table, names.lock_names(sent)) == ("assign of 9", ("assign 9",))
    assert counting.asked == 2
    other = Record(8, "close", State.RUNNABLE, 0, 1, 1, data=b"1")
    assert names.lock_names(other) == ("close 1",), "messages of two kinds say different things"
    long = Record(9, "create_table", State.RUNNABLE, 0, 1, 1, data=b"k" * (REMEMBERED_BYTES_MAX + 1))
    counting.asked = 0
    assert [names.lock_names(long) for _ in range(2)] == [(f"create_table {REMEMBERED_BYTES_MAX + 1}",)] * 2
    assert counting.asked == 2, "a long message is not kept"
