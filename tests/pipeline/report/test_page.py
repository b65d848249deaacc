"""The page: small, without scripts and without anything from elsewhere; unknown is said."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest

from pipeline.report.against import compared
from pipeline.report.outputs import topics_csv
from pipeline.report.page import page
from pipeline.report.result import (
    Cost,
    GapReport,
    PlanReport,
    Recovered,
    Result,
    StopCost,
    TermReport,
    TopicCost,
    TopicReport,
)
from pipeline.report.wording import seconds, size
from tests.pipeline.report.kit import reported
from tests.pipeline.report.test_figures import moved, stopped

BYTES_MAX = 300_000
VOID = frozenset({"meta", "line", "rect"})


class Checker(HTMLParser):
    """Keeps the tags that are open, and everything that a page could load or run."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        if tag in {"script", "link", "img", "iframe"} or any(
            name in {"src", "href"} or name[:2] == "on" for name, _ in attrs
        ):
            self.loads.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def large(name: str = "topic") -> Result:
    """Makes the report of a large cluster in a bad week."""
    cost = Cost(1_000, 900, 1234.5, 10.0, None, None, 20)
    topics = [TopicReport(f"{name}-{i:05d}", 50, cost, 0.9999, None, 4.0, 3.0, None) for i in range(5_000)]
    worst = [TopicCost(topic.topic, cost) for topic in topics[:10]]
    whole = Recovered(100, 20.0, 1, 0)
    stops = [
        StopCost(i, i % 300, i % 2 == 0, False, i * 10**9, None, None, None, None, 50, cost, worst, whole, whole)
        for i in range(3_000)
    ]
    terms = [TermReport(i, 1, i * 10**9, (i + 1) * 10**9) for i in range(3_000)]
    gaps = [GapReport(i * 10**9, i * 10**9 + 1, "rows are missing") for i in range(3_000)]
    return Result(
        1, "c", 0, 3 * 10**12, "", None, 2_000, cost, Cost(), stops, topics, [], [], 3, [],
        [PlanReport(1, 0, None, "RUNNABLE", "<b>")], terms, gaps,
    )  # fmt: skip


@pytest.mark.parametrize("result", [large(), reported(stopped().lines), reported(moved().lines)])
def test_a_page_is_whole_small_and_loads_nothing(result: Result) -> None:
    text = page(msgspec.structs.replace(result, against=compared(result, reported(stopped().lines))))
    checker = Checker()
    checker.feed(text)
    assert (checker.open, checker.loads) == ([], [])
    assert not re.search(r"url\(|@import|https?:", text)
    assert len(text.encode()) < BYTES_MAX


def test_text_of_a_journal_is_no_markup() -> None:
    text = page(large("<script>alert(1)</script>"))
    assert "<script" not in text
    assert "&lt;b&gt;" in text


def test_unknown_is_said_and_is_no_zero() -> None:
    text = re.sub("<[^>]*>", " ", page(reported(stopped().lines)))
    assert "give --session-timeout" in text
    assert "not known" in text
    assert [seconds(None), size(None)] == ["not known", "not known"]


def test_the_page_has_a_line_for_each_stop_and_each_topic() -> None:
    text = page(reported(stopped().lines))
    assert text.count("<td>unplanned") == 1
    assert "<td>orders</td>" in text
    assert 'class="u"' in text, "the stop is in the drawing"


def test_the_csv_has_empty_cells_where_nothing_is_known() -> None:
    head, line = topics_csv(reported(stopped().lines)).splitlines()
    cells: dict[str, Any] = dict(zip(head.split(","), line.split(","), strict=True))
    assert (cells["topic"], cells["at_most_s"], cells["under_min_s"]) == ("orders", "", "")
    assert float(cells["known_s"]) == pytest.approx(0.2)


def test_two_reports_side_by_side() -> None:
    here, there = reported(stopped().lines), reported(moved().lines)
    found = compared(here, there)
    by_name = {each.name: each for each in found.figures}
    assert (by_name["unplanned stops"].here, by_name["unplanned stops"].there) == (1, 0)
    assert by_name["without a leader, known"].delta == pytest.approx(0.2)
    assert by_name["without a leader, at most"].delta is None, "the session time-out is not known"
    [topic] = found.topics
    assert topic.name == "orders"
    assert topic.delta == pytest.approx(0.2)


def test_the_result_is_json_with_a_version() -> None:
    encoded = msgspec.json.encode(reported(stopped().lines))
    assert msgspec.json.decode(encoded)["version"] == 1
    assert msgspec.json.decode(encoded, type=Result) == reported(stopped().lines)
