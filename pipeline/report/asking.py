"""Makes the question that all buckets answer, from the rows that are of no partition: terms, brokers, requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from pipeline.report.bucket import Question
from pipeline.report.intervals import Around
from pipeline.report.replication import MinIsr
from pipeline.report.result import GapReport, PlanReport
from pipeline.report.stops import KINDS, Silence, stops_of
from pipeline.report.terms import Line, Terms, ends_of_terms, terms_of
from pipeline.report.told import fronts
from state_machines.journal.events import Kind
from state_machines.procedures.states import State

COLUMNS: Final = (
    *("ctl_epoch", "ctl_id", "seq", "ts_us", "mono_us", "kind", "t_detect", "broker", "broker_epoch", "session_ms"),
    *("pid", "root", "procedure", "from_state", "to_state", "result", "topics"),
)
"""Columns of rows that are of no partition; ``session_ms`` may be missing."""
EXPECTED: Final = frozenset({"EXPIRED", "SAME_NUMBER"})
"""Kinds of gaps within which no row of the window is missing."""
PLAN: Final = "reassign"


class Wanted(Struct, frozen=True):
    """What a user asks for. Times are microseconds of the wall clock; None: the journal's own begin or end.

    ``foretell``: also what stops would cost now, where there is a snapshot.
    """

    since_us: int | None = None
    until_us: int | None = None
    topic_prefix: str = ""
    session_ms: int | None = None
    tick_ms: int = 2_000
    foretell: bool = True


class Beside(Struct, frozen=True):
    """What snapshots tell: ``min.insync.replicas`` of topics, and session time-outs of brokers."""

    min_isr: MinIsr = {}
    session_ms: Mapping[int, int] = {}


def question(
    rest: pa.Table, requests: Iterable[pa.Table], gaps: Sequence[Mapping[str, Any]], wanted: Wanted, beside: Beside
) -> Question:
    """Makes the question. ``rest``: the rows of no partition, oldest first; ``gaps``: rows of the gaps' table.

    ``requests``: tables of :func:`~pipeline.report.told.told`.

    Raises ``ValueError`` if the window is empty.
    """
    number = {name: np.asarray(rest[name], np.int64) for name in ("ctl_epoch", "ctl_id", "seq", "ts_us", "mono_us")}
    terms = Terms(terms_of(*number.values()))
    first_us = min((term.first_us for term in terms.all), default=0)
    last_us = max((term.last_us for term in terms.all), default=0)
    begin_us = first_us if wanted.since_us is None else max(wanted.since_us, first_us)
    end_us = last_us if wanted.until_us is None else min(wanted.until_us, last_us)
    if not terms.all:
        raise ValueError("there are no rows of a term: the journal is empty")
    if begin_us > end_us:
        raise ValueError(f"there are no rows in that time: the journal is from {_day(first_us)} to {_day(last_us)}")
    stops = stops_of(_lines(rest, KINDS), terms, Silence(wanted.session_ms, wanted.tick_ms, beside.session_ms))
    missing = [(gap.begin_us, gap.end_us) for gap in reported(gaps, first_us, last_us)]
    around = Around(stops, *fronts(requests, terms), _disjoint(missing), first_us, last_us)
    return Question(terms, around, begin_us, end_us, wanted.topic_prefix, beside.min_isr)


def needed(rest: pa.Table) -> pa.Table:
    """Returns the rows that :func:`question` and :func:`plans` look at, and those that show a term's begin and end.

    Most rows of a cluster are requests to brokers: :func:`~pipeline.report.told.told` makes a few of them.
    """
    kind = pc.cast(rest["kind"], pa.string())
    events = pc.is_in(kind, value_set=pa.array([each.value for each in KINDS]))
    moved = pc.and_(pc.equal(rest["procedure"], PLAN), pc.equal(rest["pid"], rest["root"]))
    plans = pc.fill_null(pc.and_(pc.equal(kind, Kind.PROC_STATE.value), moved), False)
    kept = np.asarray(pc.or_(events, plans), bool).copy()
    kept[ends_of_terms(*(np.asarray(rest[name], np.int64) for name in ("ctl_epoch", "ctl_id", "seq", "ts_us")))] = True
    return rest.filter(pa.array(kept))


def reported(gaps: Sequence[Mapping[str, Any]], first_us: int, last_us: int) -> list[GapReport]:
    """Returns times in which rows are missing, oldest first. A wall clock may step back: the earlier time begins."""
    found = []
    for gap in gaps:
        if gap["kind"] not in EXPECTED:
            begin_us = first_us if gap["ts_from_us"] is None else gap["ts_from_us"]
            end_us = last_us if gap["ts_to_us"] is None else gap["ts_to_us"]
            found.append(GapReport(min(begin_us, end_us), max(begin_us, end_us), gap["why"]))
    return sorted(found, key=lambda gap: (gap.begin_us, gap.end_us))


def plans(rest: pa.Table, terms: Terms) -> list[PlanReport]:
    """Returns the plans of moves that the daemons carried out, oldest first."""
    found: dict[int, PlanReport] = {}
    for row in _lines(rest, {Kind.PROC_STATE}):
        if row["procedure"] != PLAN or row["pid"] is None or row["pid"] != row["root"]:
            continue
        at_us, state = terms.at(row), row["to_state"] or ""
        before = found.get(row["pid"])
        begin_us = at_us if before is None else before.begin_us
        topics = row["topics"] or ([] if before is None else before.topics)
        ended = state in State.__members__ and State[state].is_final
        end_us = at_us if ended else None
        found[row["pid"]] = PlanReport(row["pid"], begin_us, end_us, state, row["result"] or "", topics)
    return sorted(found.values(), key=lambda plan: plan.begin_us)


def _lines(rest: pa.Table, kinds: Iterable[Kind]) -> list[Line]:
    wanted = pc.is_in(pc.cast(rest["kind"], pa.string()), value_set=pa.array([kind.value for kind in kinds]))
    lines: list[Line] = rest.filter(wanted).to_pylist()
    return lines


def _day(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat(timespec="seconds")


def _disjoint(gaps: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Joins times that meet."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(gaps):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found
