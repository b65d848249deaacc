"""Makes the sections of the page about reassignments: by topic, by plan, and beside the file of a plan."""

from __future__ import annotations

from typing import Final

from pipeline.report.result import MoveReport, PlanReport, Predicted, PredictedTopic, Result
from pipeline.report.wording import UNKNOWN, counted, left_out, name, number, seconds, size, table, time

ROWS_MAX: Final = 50
"""Rows of a table; the JSON has all."""


def moves(result: Result) -> str:
    """Has reassignments by topic, and plans."""
    if not result.moves and not result.plans and result.predicted is None:
        return "<p>No partition was reassigned.</p>"
    heads = (
        *("topic", "partitions", "not ended", "replicas added", "took", "longest", "bytes", "size not known"),
        *("rate", "left, at most"),
    )
    listed = [_move(each) for each in result.moves[:ROWS_MAX]]
    by_topic = table(heads, listed) + left_out(len(result.moves), ROWS_MAX, "topics") if listed else ""
    return by_topic + _plans(result.plans) + _predicted(result.predicted)


def _move(each: MoveReport) -> tuple[str, ...]:
    return (
        name(each.topic),
        number(each.partitions),
        number(each.unfinished),
        number(each.added),
        seconds(each.seconds),
        seconds(each.longest_s),
        size(each.bytes),
        number(each.size_unknown),
        _rate(each.rate_bytes_per_s),
        seconds(each.left_s),
    )


def _plans(plans: list[PlanReport]) -> str:
    if not plans:
        return ""
    heads = (
        *("plan", "begin (UTC)", "end (UTC)", "state", "result", "topics", "partitions", "not ended", "bytes"),
        *("size not known", "rate"),
    )
    rows = [
        (
            *(str(plan.pid), time(plan.begin_us), time(plan.end_us), plan.state, plan.result),
            *(number(len(plan.topics)), number(plan.partitions), number(plan.unfinished), size(plan.bytes)),
            *(number(plan.size_unknown), _rate(plan.rate_bytes_per_s)),
        )
        for plan in plans[:ROWS_MAX]
    ]
    return f"<h3>Plans</h3>{table(heads, rows, text=5)}{left_out(len(plans), ROWS_MAX, 'plans')}"


def _predicted(of: Predicted | None) -> str:
    if of is None:
        return ""
    share = _share(of.predicted_bytes, of.bytes)
    said = (
        f"{counted(of.moves, 'move')} of the plan: {of.ended:,} ended, {of.unfinished:,} go on, {of.not_begun:,} did "
        f"not begin, {of.leaders_only:,} move leaders alone. Predicted {size(of.predicted_bytes)}, "
        f"moved {size(of.bytes)}{share}."
    )
    heads = ("topic", "moves", "ended", "go on", "not begun", "predicted", "moved", "share", "size not known")
    rows = [_beside(each) for each in of.topics[:ROWS_MAX]]
    listed = table(heads, rows) if rows else ""
    return f"<h3>Beside the plan</h3><p>{said}</p>{listed}{left_out(len(of.topics), ROWS_MAX, 'topics')}"


def _beside(each: PredictedTopic) -> tuple[str, ...]:
    return (
        *(name(each.topic), number(each.moves), number(each.ended), number(each.unfinished), number(each.not_begun)),
        *(size(each.predicted_bytes), size(each.bytes)),
        _share(each.predicted_bytes, each.bytes).removeprefix(", ") or UNKNOWN,
        number(each.size_unknown),
    )


def _share(predicted: int | None, moved: int | None) -> str:
    return f", {moved / predicted:.0%}" if predicted and moved is not None else ""


def _rate(value: float | None) -> str:
    return UNKNOWN if value is None else f"{size(value)}/s"
