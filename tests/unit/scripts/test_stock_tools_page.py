"""The table of command lines of Kafka's tools, and its page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testing.embedded.tools import CLASSES, Finished
from tests.verify.stock_tools import compare
from tests.verify.stock_tools.accepted import ACCEPTED, Accepted
from tests.verify.stock_tools.lines import LINES
from tests.verify.stock_tools.lines_moves import FILES
from tests.verify.stock_tools.normal import normal
from tests.verify.stock_tools.page import document
from tests.verify.stock_tools.sites import Result
from tests.verify.stock_tools.steps import Line

PAGE = Path(__file__).parents[3] / "docs" / "evidence" / "stock-tools.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == document(), "run: make docs"


def test_every_tool_and_every_file_is_used() -> None:
    assert {line.tool for line in LINES} == set(CLASSES) - {"kafka-delegation-tokens"}, "tokens need a secured cluster"
    assert {name for line in LINES for name in re.findall(r"\{files\}/(\S+)", line.text)} == set(FILES)


@pytest.mark.parametrize("accepted", ACCEPTED, ids=lambda one: one.line)
def test_every_accepted_difference_covers_a_line(accepted: Accepted) -> None:
    assert any(accepted.covers(line.text) for line in LINES)


def test_only_values_that_vary_from_run_to_run_are_left_out() -> None:
    line = Line("kafka-topics --describe")
    row = "Topic: a\tTopicId: x4_-\tPartition: 0\tLeader: 2\tIsr: 3,1,2\n"
    printed = f"{row}[2026-01-02 03:04:05,678] ERROR 127.0.0.1:9\n\tat a.b\n"
    assert normal(printed, {"127.0.0.1:9": "BROKER-1"}, line) == (
        "Topic: a\tTopicId: ID\tPartition: 0\tLeader: 2\tIsr: 1,2,3",
        "[DATE] ERROR BROKER-1",
    )
    assert "Leader: N" in normal(printed, {}, line._replace(placed=True))[0]


def test_a_difference_is_accepted_as_a_whole_or_not_at_all() -> None:
    one = Accepted("--describe", lost="", extra="node .*", why="one node more")
    assert one.explains("x --describe", (0, 0), (), ("node 4",))
    assert not one.explains("x --list", (0, 0), (), ("node 4",))
    assert not one.explains("x --describe", (0, 1), (), ("node 4",))
    assert not one.explains("x --describe", (0, 0), ("topic a",), ("node 4",))
    assert not one.explains("x --describe", (0, 0), (), ("node 4", "topic a"))


def test_a_line_that_waits_where_kafkas_does_not_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line("kafka-topics --delete --topic a")
    monkeypatch.setattr(compare, "LINES", (line,))
    quick = Result(0, ("done",), (), Finished(0, "done", ""), 0.5)
    slow = quick._replace(seconds=30.0)
    assert [one.extra for one in compare.differences({"kafka": [quick], "brokers": [slow]})] == [(compare.LONGER,)]
    assert not [*compare.differences({"kafka": [slow], "brokers": [quick]})]
