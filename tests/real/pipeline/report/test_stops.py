"""When brokers stopped, in small journals."""

from __future__ import annotations

import pytest

from pipeline.report.asking import Beside, Wanted
from pipeline.report.stops import Stop
from tests.real.pipeline.report.kit import ALONE, WALL_S, Line, Term, asked, us

SESSION_MS, TICK_MS = 6_000, 1_000
KNOWN = Wanted(session_ms=SESSION_MS, tick_ms=TICK_MS)


def stops(lines: list[Line], wanted: Wanted = KNOWN, beside: Beside = ALONE) -> list[Stop]:
    question, _ = asked(lines, wanted, beside)
    return list(question.around.stops)


def at(seconds: float) -> int:
    return us(WALL_S + seconds)


def test_a_death_is_unplanned_and_may_be_older_by_the_session_and_a_tick() -> None:
    lines = (
        Term().begin(0, 1, 2).add(10.5, "BROKER_DOWN", broker=2, t_detect=us(10)).add(30, "BROKER_UP", broker=2).lines
    )
    [stop] = stops(lines)
    assert (stop.broker, stop.planned, stop.between_terms) == (2, False, False)
    assert (stop.begin_us, stop.at_most_us, stop.down_us, stop.up_us) == (at(10), at(3), at(10), at(30))


@pytest.mark.parametrize(
    ("wanted", "beside", "expected_s"),
    [
        (Wanted(), Beside(), None),
        (Wanted(tick_ms=0), Beside(session_ms={2: 4_000}), 6.0),
        (Wanted(session_ms=3_000, tick_ms=0), Beside(), 7.0),
        (Wanted(session_ms=3_000, tick_ms=0), Beside(session_ms={2: 4_000, 1: 9_000}), 6.0),
    ],
)
def test_without_a_time_out_the_earliest_death_is_not_known(
    wanted: Wanted, beside: Beside, expected_s: float | None
) -> None:
    lines = Term().begin(0, 1, 2).add(10, "BROKER_DOWN", broker=2).lines
    [stop] = stops(lines, wanted, beside)
    assert stop.at_most_us == (None if expected_s is None else at(expected_s))


def test_a_controlled_shutdown_is_planned_from_its_first_request_on() -> None:
    lines = (
        Term().begin(0, 1, 2).add(10, "BROKER_SHUTDOWN_BEGIN", broker=2).add(11, "BROKER_SHUTDOWN_BEGIN", broker=2)
        .add(12, "BROKER_SHUTDOWN_END", broker=2).add(13, "BROKER_DOWN", broker=2).add(20, "BROKER_UP", broker=2).lines
    )  # fmt: skip
    [stop] = stops(lines)
    assert stop == Stop(2, True, at(10), at(10), at(12), at(13), at(20))


def test_a_restart_of_a_broker_that_stopped_before_is_another_stop() -> None:
    term = Term().begin(0, 1, 2).add(10, "BROKER_DOWN", broker=2).add(20, "BROKER_UP", broker=2)
    found = stops(term.add(30, "BROKER_DOWN", broker=2).add(30, "BROKER_UP", broker=2).lines)
    assert [(stop.begin_us, stop.up_us) for stop in found] == [(at(10), at(20)), (at(30), at(30))]


def test_an_undone_shutdown_ends() -> None:
    term = Term().begin(0, 1, 2).add(10, "BROKER_SHUTDOWN_BEGIN", broker=2).add(15, "BROKER_UP", broker=2)
    [stop] = stops(term.lines)
    assert (stop.down_us, stop.up_us) == (None, at(15))


@pytest.mark.parametrize(("listed", "epochs", "up_s"), [((1,), 100, None), ((1, 2), 200, 50.0)])
def test_a_broker_that_went_while_there_was_no_controller_is_seen_by_the_next_one(
    listed: tuple[int, ...], epochs: int, up_s: float | None
) -> None:
    first = Term().begin(0, 1, 2).add(20, "RPC_BATCH", broker=1)
    second = Term(2, wall_s=WALL_S + 50)
    second.add(0, "CTL_ELECTED").add(0, "BROKER_UP", broker=1, broker_epoch=101)
    if 2 in listed:
        second.add(0, "BROKER_UP", broker=2, broker_epoch=epochs + 2)
    [stop] = stops(first.lines + second.add(0, "CTL_PHASE").lines)
    assert (stop.broker, stop.planned, stop.between_terms) == (2, False, True)
    assert (stop.begin_us, stop.at_most_us) == (at(50), at(20 - 7)), "it was registered at the last row of the term"
    assert stop.up_us == (None if up_s is None else at(up_s))


def test_a_stop_that_the_next_controller_still_sees_is_one_stop() -> None:
    first = Term().begin(0, 1, 2).add(10, "BROKER_DOWN", broker=2)
    second = Term(2, wall_s=WALL_S + 50).begin(0, 1)
    [stop] = stops(first.lines + second.add(5, "BROKER_UP", broker=2).lines)
    assert (stop.begin_us, stop.up_us) == (at(10), at(55))
