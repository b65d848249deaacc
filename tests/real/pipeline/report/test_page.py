"""The page of a report, and the commands of docs/how-to/what-a-restart-cost.md."""

from __future__ import annotations

import re
import shlex
import shutil
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pipeline.report.against import compared
from pipeline.report.outputs import topics_csv
from pipeline.report.page import page
from pipeline.report.result import (
    Cost,
    GapReport,
    LossReport,
    MoveReport,
    Now,
    PlanReport,
    Predicted,
    PredictedTopic,
    Recovered,
    Result,
    StopCost,
    TermReport,
    TopicCost,
    TopicReport,
    Usual,
)
from pipeline.report.wording import seconds, size
from state_machines.planning.json_files import encode_plan
from state_machines.planning.plan import Move, Plan, Summary
from tests.kit.command import regent
from tests.real.pipeline.logs import write
from tests.real.pipeline.report.kit import Term, reported
from tests.real.pipeline.report.test_figures import moved, stopped
from tests.real.pipeline.report.test_outputs import snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    """Makes the report of 40 brokers and 200,000 partitions in a bad week, with all that a page can have."""
    cost = Cost(1_000, 900, 1234.5, 10.0, None, None, 20)
    names = [f"{name}-{i:05d}" for i in range(4_000)]
    topics = [TopicReport(each, 50, cost, 0.9999, None, 4.0, 3.0, None) for each in names]
    worst = [TopicCost(each, cost) for each in names[:10]]
    whole, usual = Recovered(100, 20.0, 1, 0), Usual(10, 1.234, 1.0, 2.0, 10)
    stops = [
        StopCost(i, i % 40, i % 2 == 0, False, i * 10**9, None, None, None, None, 50, cost, worst, whole, whole, usual)
        for i in range(3_000)
    ]
    terms = [TermReport(i, 1, i * 10**9, (i + 1) * 10**9) for i in range(3_000)]
    gaps = [GapReport(i * 10**9, i * 10**9 + 1, "rows are missing") for i in range(3_000)]
    moves = [MoveReport(each, 50, 1, 100, 3600.0, 3600.0, 10**12, 1, 1e8, 10**11, 1000.0) for each in names]
    plans = [PlanReport(i, 0, None, "RUNNABLE", "<b>", names[:1_000], 50, 1, 10**12, 1, 1e8) for i in range(300)]
    beside = [PredictedTopic(each, 50, 40, 5, 5, 10**12, 10**12, 1) for each in names[:1_000]]
    lost = [f"{each}-{i}" for i, each in enumerate(names[:5])]
    losses = [LossReport(f"broker {i}", [i], 5_000, 9, lost, 100, 12.3, 45.6, 7890.1) for i in range(50)]
    return Result(
        1, "c", 0, 3 * 10**12, "", None, 2_000, cost, Cost(), stops, topics, [], [], 3, moves, plans, terms, gaps,
        predicted=Predicted(200_000, 9, 1, 1, 1, 10**12, 10**12, 1, beside), now=Now(10**12, 10, 10, losses),
    )  # fmt: skip


@pytest.mark.parametrize(
    "result",
    [large("a-topic-of-the-payments-team"), large("t" * 240), reported(stopped().lines), reported(moved().lines)],
)
def test_a_page_is_whole_small_and_loads_nothing(result: Result) -> None:
    text = page(msgspec.structs.replace(result, against=compared(result, reported(stopped().lines))))
    checker = Checker()
    checker.feed(text)
    assert (checker.open, checker.loads) == ([], [])
    assert not re.search(r"url\(|@import|https?:", text)
    assert len(text.encode()) < BYTES_MAX


def test_what_a_page_leaves_out_it_says() -> None:
    text = page(large())
    for said in (
        "2,900 more stops, which cost less, are in the JSON",
        "3,900 more topics, which cost less, are in the JSON",
        "3,950 more topics are in the JSON",
        "250 more plans are in the JSON",
        "950 more topics are in the JSON",
        "2,950 more times are in the JSON",
        "Topics of other stops are in the JSON",
        "Drawn are the 300 stops that cost most",
    ):
        assert said in text, said


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
    assert text.count("<td class=x>unplanned") == 1
    assert "<td class=x>orders</td>" in text
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


DOCS = Path(__file__).parents[4] / "docs"
PAGE = DOCS / "how-to" / "what-a-restart-cost.md"


def test_the_documented_commands_succeed(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("pipeline.session.start", lambda *_: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    now_s = datetime.now(UTC).timestamp()
    second = Term(2, 2, now_s - 100).begin(60, 2, 3).add(90, "CTL_RESIGNED")
    first = [line | {"ts_us": line["mono_us"] + int((now_s - 9 * 86_400) * 1e6)} for line in stopped().lines]
    write(tmp_path, [first + second.lines])
    (tmp_path / "snapshots").mkdir()
    snapshot(tmp_path / "snapshots", "1.jsonl", int(now_s * 1e6), orders=2)
    (tmp_path / "loads.csv").write_text("topic,partition,size_bytes\norders,0,1000\n")
    move = Move("orders", 0, (1, 2, 3), (4, 2, 3), 1_000)
    (tmp_path / "plan.json").write_bytes(encode_plan(Plan("c", "balance", (move,), (), Summary(0, 0, (), 0, 0))))
    commands = re.findall(r"(?m)^regent (pipeline .*)$", PAGE.read_text(encoding="utf-8"))
    assert [command.split()[1] for command in commands] == ["ingest", *["report"] * 5]
    for command in commands:
        if "before-the-upgrade" in command:
            shutil.copytree(tmp_path / "merged", tmp_path / "merged-before-the-upgrade")
        regent(*shlex.split(command.replace("/journals", str(tmp_path))))
        if "--against-plan" in command:
            found = msgspec.json.decode((tmp_path / "merged" / "report" / "report.json").read_bytes(), type=Result)
            assert found.predicted is not None
            assert (found.predicted.not_begun, found.predicted.predicted_bytes) == (1, 1_000)
            assert found.now is not None
    assert (tmp_path / "merged" / "report" / "report.html").exists()


def test_the_reference_has_every_field_of_the_result() -> None:
    text = (DOCS / "reference" / "journal.md").read_text(encoding="utf-8").partition("## The report")[2]
    for name in Result.__struct_encode_fields__:
        assert f"`{name}`" in text, name
