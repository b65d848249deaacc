"""When partitions had no leader that served, in small journals: the definitions of J3, a case each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from pipeline.report.asking import Wanted, needed, question
from pipeline.report.asking import reported as gaps_of
from pipeline.report.bucket import answered
from pipeline.report.intervals import Mark
from pipeline.report.told import EVERY, told
from tests.real.pipeline.report.kit import ALONE, NO_GAPS, WALL_S, Line, Term, asked, parted, us

CLIENTS = "UPDATE_METADATA"
KNOWN = Wanted(session_ms=6_000, tick_ms=1_000)


class Interval(NamedTuple):
    """Times are seconds after the wall clock's 0 of the journal."""

    begin: float
    at_most: float | None
    end: float
    clients: float
    stop: int | None
    marks: int


def intervals(lines: list[Line], gaps: list[Line] | tuple[()] = (), wanted: Wanted = KNOWN) -> list[Interval]:
    def seconds(microseconds: int) -> float:
        return round(microseconds / 1e6 - WALL_S, 3)

    _, found = asked(lines, wanted, gaps=gaps or NO_GAPS)
    rows: list[dict[str, Any]] = found.intervals.to_pylist()
    return [
        Interval(
            seconds(row["begin_us"]),
            None if row["at_most_us"] is None else seconds(row["at_most_us"]),
            seconds(row["end_us"]),
            seconds(row["clients_us"]),
            row["stop"],
            row["marks"],
        )
        for row in rows
    ]


def died(at_s: float = 10) -> Term:
    """Broker 1 is gone and broker 2 leads in one row; broker 3 is told, then broker 2, then a client's broker."""
    term = (
        Term().begin(0, 1, 2, 3).leader(1, None, 1, "new_topic").add(at_s, "BROKER_DOWN", broker=1, t_detect=us(at_s))
    )
    return term.leader(at_s, 1, 2, "broker_failure", isr1=[2, 3])


def test_a_failure_lasts_from_the_death_to_the_acknowledgement_of_the_new_leader() -> None:
    term = (
        died().told(10.03, 10.05, 3).told(10.03, 10.2, 2).told(10.21, 10.3, 3, "UPDATE_METADATA").add(20, "CTL_PHASE")
    )
    assert intervals(term.lines) == [Interval(10.0, 3.0, 10.2, 10.3, 0, 0)]


def test_without_a_session_time_out_the_earliest_begin_is_not_known() -> None:
    [found] = intervals(died().told(10.03, 10.2, 2).lines, wanted=Wanted())
    assert (found.begin, found.at_most) == (10.0, None)


def test_a_request_that_was_sent_before_the_commit_does_not_end_it() -> None:
    term = died().told(9.0, 10.1, 2).told(10.15, 10.4, 2).add(20, "CTL_PHASE")
    assert [found.end for found in intervals(term.lines)] == [10.4]


def test_a_list_of_brokers_tells_clients_nothing() -> None:
    term = (
        died()
        .told(10.03, 10.2, 2)
        .told(10.03, 10.25, 3, "UPDATE_METADATA", 0)
        .told(10.3, 10.6, 3, "UPDATE_METADATA", 5)
    )
    assert [found.clients for found in intervals(term.add(20, "CTL_PHASE").lines)] == [10.6]


def test_a_controlled_shutdown_begins_with_the_decision() -> None:
    term = Term().begin(0, 1, 2, 3).leader(1, None, 1, "new_topic").add(10, "BROKER_SHUTDOWN_BEGIN", broker=1)
    term.leader(10, 1, 2, "controlled_shutdown", isr1=[2, 3]).told(10.03, 10.1, 2).add(20, "CTL_PHASE")
    assert intervals(term.lines) == [Interval(10.01, 10.01, 10.1, 10.1, 0, 0)]


def test_what_a_planned_stop_could_not_move_served_until_the_broker_was_free_to_stop() -> None:
    term = Term().begin(0, 1, 2).leader(1, None, 1, "new_topic").add(10, "BROKER_SHUTDOWN_BEGIN", broker=1)
    term.add(11, "BROKER_SHUTDOWN_END", broker=1).add(15, "BROKER_DOWN", broker=1, t_detect=us(15))
    term.leader(15, 1, -1, "broker_failure", isr1=[1]).add(20, "CTL_PHASE")
    assert intervals(term.lines) == [Interval(15.0, 11.0, 20.0, 20.0, 0, Mark.OPEN)]


def test_no_leader_opens_an_interval_that_the_next_leader_ends() -> None:
    term = died().lines[:-1]
    lines = Term()
    lines.lines = term
    lines.leader(10, 1, -1, "broker_failure", isr1=[1]).add(30, "BROKER_UP", broker=1)
    lines.leader(30, -1, 1, "broker_return", isr1=[1]).told(30.1, 30.5, 1).add(40, "CTL_PHASE")
    assert intervals(lines.lines) == [Interval(10.0, 3.0, 30.5, 30.5, 0, 0)]


def test_a_deletion_ends_an_interval() -> None:
    lines = Term()
    lines.lines = died().lines[:-1]
    lines.leader(10, 1, -1, "broker_failure", isr1=[1])
    lines.leader(20, -1, -1, "deletion", "PARTITION_STATE", to_state="NON_EXISTENT").add(40, "CTL_PHASE")
    assert intervals(lines.lines) == [Interval(10.0, 3.0, 20.02, 20.02, 0, Mark.DELETED)]


def test_the_next_change_of_the_leader_ends_what_nobody_acknowledged() -> None:
    term = died().add(12, "BROKER_DOWN", broker=2, t_detect=us(12)).leader(12, 2, 3, "broker_failure", isr1=[3])
    term.told(12.1, 12.4, 3).add(20, "CTL_PHASE")
    first, second = intervals(term.lines)
    assert (first.begin, first.end, first.marks) == (10.0, 10.02, Mark.CENSORED), "the end is not known: the commit"
    assert (second.begin, second.end) == (12.0, 12.4)


def test_an_acknowledgement_after_the_next_change_ends_it_there() -> None:
    term = died().leader(12, 2, 3, "election").told(12.1, 12.4, 3).told(10.03, 13.0, 2).add(20, "CTL_PHASE")
    first, second = intervals(term.lines)
    assert (first.end, second.begin) == (12.01, 12.01)


def test_an_election_that_no_stop_caused_is_an_interval_without_one() -> None:
    term = Term().begin(0, 1, 2).leader(1, None, 2, "new_topic").leader(5, 2, 1, "election").told(5.03, 5.1, 1)
    assert intervals(term.add(9, "CTL_PHASE").lines) == [Interval(5.01, 5.01, 5.1, 5.1, None, 0)]


def test_over_a_change_of_controller_it_is_on_two_clocks() -> None:
    """The first daemon dies between its commit and its requests; the second one's clock began 100 s later."""
    second = Term(2, 2, WALL_S + 100).begin(-80, 2, 3).told(-79, -78.5, 2)
    assert intervals(died().lines + second.lines) == [Interval(10.0, 3.0, 21.5, 21.5, 0, Mark.CLOCKS)]


def test_a_leader_that_went_between_two_terms_may_have_gone_since_the_first_ones_last_row() -> None:
    first = Term().begin(0, 1, 2).leader(1, None, 1, "new_topic").told(1.1, 10.0, 1)
    second = Term(2, 2).begin(50, 2).leader(50, 1, 2, "failover", isr1=[2], t_detect=None).told(50.1, 50.4, 2)
    [found] = intervals(first.lines + second.lines)
    assert found == Interval(50.01, 10.0 - 7.0, 50.4, 50.4, 0, 0)


@pytest.mark.parametrize(("kind", "marks"), [("HOLE", Mark.CENSORED), ("EXPIRED", 0)])
@pytest.mark.parametrize(("begin_s", "end_s", "meets"), [(10.1, 10.15, True), (9.0, 10.01, True), (11.0, 12.0, False)])
def test_missing_rows_censor_what_they_meet(kind: str, marks: int, begin_s: float, end_s: float, meets: bool) -> None:
    times = {"ts_from_us": us(WALL_S + begin_s), "ts_to_us": us(WALL_S + end_s)}
    term = died().told(10.03, 10.2, 2).add(20, "CTL_PHASE")
    [found] = intervals(term.lines, [{"kind": kind, "why": "rows are missing"} | times])
    assert found.marks == (marks if meets else 0)


def test_a_partition_that_the_journal_finds_without_a_leader_has_had_none_since_it_begins() -> None:
    term = Term().begin(0, 1, 2).leader(5, -1, 1, "broker_return").told(5.1, 5.3, 1)
    assert intervals(term.add(9, "CTL_PHASE").lines) == [Interval(0.0, 0.0, 5.3, 5.3, None, Mark.CENSORED)]


def hole(begin_s: float, end_s: float) -> Line:
    times = {"ts_from_us": us(WALL_S + begin_s), "ts_to_us": us(WALL_S + end_s)}
    return {"kind": "HOLE", "why": "rows are missing"} | times


def back(term: Term) -> list[Line]:
    """Broker 1 leads again at 30 s, where no leader is found."""
    term.leader(30, -1, 1, "broker_return", isr1=[1]).told(30.1, 30.5, 1)
    return term.add(40, "CTL_PHASE").lines


def test_a_leader_that_went_in_a_missing_row_was_gone_once_rows_are_there_again() -> None:
    """Nothing says when it went: between its last row at 1.02 s and the end of the gap, 20 s."""
    lines = back(Term().begin(0, 1, 2).leader(1, None, 1, "new_topic").told(1.1, 1.2, 1))
    [found] = intervals(lines, [hole(10, 20)])
    assert found == Interval(20.0, 1.02, 30.5, 30.5, None, Mark.CENSORED)
    [found] = intervals(lines)
    assert (found.begin, found.at_most, found.marks) == (30.0, 1.02, Mark.CENSORED), "no gap is known of"


def test_a_leader_that_went_unseen_went_with_the_stop_of_its_broker() -> None:
    term = Term().begin(0, 1, 2).leader(1, None, 1, "new_topic").told(1.1, 1.2, 1)
    lines = back(term.add(12, "BROKER_DOWN", broker=1, t_detect=us(12)).add(29, "BROKER_UP", broker=1))
    assert intervals(lines, [hole(12, 20)]) == [Interval(20.0, 5.0, 30.5, 30.5, 0, Mark.CENSORED)]
    [found] = intervals(lines, [hole(12, 20)], Wanted())
    assert found.at_most is None


def test_a_stop_before_the_row_that_last_showed_the_leader_is_not_the_cause() -> None:
    term = Term().begin(0, 1, 2).add(1, "BROKER_DOWN", broker=1, t_detect=us(1)).add(2, "BROKER_UP", broker=1)
    [found] = intervals(back(term.leader(5, None, 1, "new_topic").told(5.1, 5.2, 1)), [hole(10, 20)])
    assert (found.at_most, found.stop) == (5.02, None)


def test_a_topic_that_came_back_and_lost_its_leader_in_missing_rows_had_none() -> None:
    term = Term().begin(0, 1, 2).leader(1, None, 1, "new_topic").told(1.1, 1.2, 1)
    term.leader(5, 1, -1, "deletion", "PARTITION_STATE", to_state="NON_EXISTENT")
    [found] = intervals(back(term), [hole(10, 20)])
    assert found == Interval(20.0, 5.02, 30.5, 30.5, None, Mark.CENSORED)


def test_an_interval_ends_where_the_next_one_begins_unseen() -> None:
    term = Term().begin(0, 1, 2).leader(1, None, 2, "new_topic").leader(5, 2, 1, "election")
    first, second = intervals(back(term), [hole(10, 20)])
    assert (first.begin, first.end, first.clients) == (5.01, 20.0, 20.0)
    assert (second.begin, second.end) == (20.0, 30.5)


def test_a_request_that_the_broker_refused_ends_nothing() -> None:
    term = died().told(10.03, 10.1, 2, err="STALE_CONTROLLER_EPOCH").told(10.15, 10.4, 2).add(20, "CTL_PHASE")
    assert [found.end for found in intervals(term.lines)] == [10.4]


def test_gaps_of_a_clock_that_stepped_back_are_in_order() -> None:
    backwards = hole(12, 9)
    [gap] = gaps_of([backwards], 0, 0)
    assert gap.begin_us < gap.end_us
    [found] = intervals(died().told(10.03, 10.2, 2).add(20, "CTL_PHASE").lines, [backwards])
    assert found.marks == Mark.CENSORED


def test_a_term_that_only_a_partition_shows_moves_no_acknowledgement_to_another_term() -> None:
    """Term 1 has no row but one of the partition; the acknowledgement is of term 2."""
    first = Term(1, 2, WALL_S - 100).leader(101, None, 1, "new_topic")
    second = Term(2).begin(2, 1, 2).add(10, "BROKER_DOWN", broker=1, t_detect=us(10))
    second.leader(10, 1, 2, "broker_failure", isr1=[2]).told(10.03, 10.2, 2)
    third = Term(3, 3).begin(15, 2).told(16, 16.5, 2).add(20, "CTL_PHASE")
    [found] = intervals([*first.lines, *second.lines, *third.lines])
    assert (found.end, found.marks) == (10.2, 0)


def test_the_rows_that_are_needed_make_the_same_question() -> None:
    second = Term(2, 2, WALL_S + 100).begin(-80, 2, 3).told(-79, -78.5, 2).add(-70, "SNAPSHOT").add(-60, "CALL")
    term = died().told(10.03, 10.2, 2)
    topics, rest = parted(Term(0, 1).add(0, "CALL").add(0.5, "CALL").lines + term.lines + second.lines)
    few = needed(rest)
    assert few.num_rows == rest.num_rows - 2, "a request and a snapshot; other rows are events, or ends of terms"
    one, other = (question(rows, [told(rest)], (), KNOWN, ALONE) for rows in (rest, few))
    assert one.terms.all == other.terms.all
    assert (one.begin_us, one.end_us, one.around.stops) == (other.begin_us, other.end_us, other.around.stops)
    assert answered(topics, one).intervals == answered(topics, other).intervals


def test_requests_that_told_nobody_or_were_overtaken_are_left_out() -> None:
    """Only broker 2's acknowledgements at 10.2 s and 11 s can end an interval; the metadata has the broker "any"."""
    term = died().told(10.03, None, 2).told(10.03, 10.1, 2, "STOP_REPLICA").told(10.03, 10.1, 3, err="X")
    term.told(10.03, 10.3, 2).told(10.05, 10.2, 2).told(10.6, 11, 2).told(10.6, 11.0004, 2)
    term.told(10, 10.4, 3, CLIENTS).told(10.1, 10.4, 4, CLIENTS).told(10.2, 10.4, 4, CLIENTS, 0)
    kept = told(parted(term.lines)[1]).to_pylist()
    found = [(row["broker"], row["t_sent"], row["t_acknowledged"]) for row in kept]
    assert found == [(EVERY, us(10.1), us(10.4)), (2, us(10.05), us(10.2)), (2, us(10.6), us(11))]


def test_a_long_burst_of_requests_is_few_of_them() -> None:
    """100,000 metadata requests in a tenth of a second to 100 brokers: one for each millisecond is left."""
    each = np.arange(100_000)
    rows: dict[str, Any] = {
        "ctl_epoch": each * 0 + 1,
        "ctl_id": each * 0 + 1,
        "broker": each % 100,
        "partitions": each * 0 + 1,
    }
    same = {"kind": ["RPC_BATCH"] * 100_000, "api": [CLIENTS] * 100_000, "err": pa.nulls(100_000, pa.string())}
    assert len(told(pa.table(rows | same | {"t_sent": each, "t_acknowledged": each + 500}))) <= 101


@pytest.mark.parametrize(
    ("since_s", "until_s", "expected"),
    [(0, 10.1, (10.0, 10.1)), (10.1, 20, (10.1, 10.2)), (0, 9, None), (10.2, 20, None)],
)
def test_a_window_takes_its_part(since_s: float, until_s: float, expected: tuple[float, float] | None) -> None:
    wanted = Wanted(us(WALL_S + since_s), us(WALL_S + until_s), session_ms=6_000)
    found = intervals(died().told(10.03, 10.2, 2).add(20, "CTL_PHASE").lines, wanted=wanted)
    assert [(one.begin, one.end) for one in found] == ([] if expected is None else [expected])


def test_a_prefix_chooses_topics() -> None:
    lines = died().told(10.03, 10.2, 2).lines
    assert intervals(lines, wanted=Wanted(topic_prefix="ord"))
    assert not intervals(lines, wanted=Wanted(topic_prefix="pay"))
