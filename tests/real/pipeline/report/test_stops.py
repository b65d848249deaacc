"""Stops of brokers: when they were, beside the last ones of their kind, and what the next one would cost."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from pipeline.inputs import Snapshot
from pipeline.report.against import compared
from pipeline.report.asking import Beside, Wanted
from pipeline.report.merging import Known
from pipeline.report.result import Result, Usual
from pipeline.report.sections import against, headline, now_section, verdict
from pipeline.report.stops import Stop
from pipeline.snapshot_file import read_snapshot
from state_machines.journal.snapshot import FORMAT, BrokerLine, Header, PartitionsLine, Trailer
from tests.real.pipeline.report.kit import ALONE, NOTHING, WALL_S, Line, Term, asked, reported, us
from tests.real.pipeline.test_inputs import write

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


USUAL = Wanted(session_ms=1_000, tick_ms=0)


def restarts(*took_s: float, planned: int = 0) -> Term:
    """Kills broker 1 once in 100 s; each time its partition has a leader again after so long.

    ``planned`` stops of broker 3, each of 0.1 s, come before.
    """
    term = Term().begin(0, 1, 2, 3).leader(1, None, 1, "new_topic")
    for at in range(planned):
        begin = 10.0 + at
        term.add(begin, "BROKER_SHUTDOWN_BEGIN", broker=3, broker_epoch=103)
        term.leader(begin, 3, 2, "controlled_shutdown", partition=1).told(begin + 0.03, begin + 0.11, 2)
        term.add(begin + 0.3, "BROKER_DOWN", broker=3, t_detect=us(begin + 0.3)).add(begin + 0.4, "BROKER_UP", broker=3)
    for at, seconds in enumerate(took_s, 1):
        died = 100.0 * at
        term.add(died, "BROKER_DOWN", broker=1, t_detect=us(died)).leader(died, 1, 2, "broker_failure")
        term.told(died + 0.03, died + seconds, 2).add(died + 50, "BROKER_UP", broker=1)
        term.leader(died + 60, 2, 1, "election").told(died + 60.03, died + 60.05, 1)
    return term.add(100.0 * len(took_s) + 100, "CTL_PHASE")


def test_a_stop_is_compared_with_the_ten_before_it_also_those_before_the_window() -> None:
    times = [9.0, *(0.2 + at / 100 for at in range(10)), 0.5]
    since = Wanted(us(WALL_S + 1_160), session_ms=1_000)
    [stop] = reported(restarts(*times, planned=2).lines, since).stops
    assert stop.usual == Usual(10, 0.5, 0.245, 0.29, 10), "the one of 9 s is too long ago"
    assert verdict(stop.usual) == "worse than all 10"


def test_verdicts() -> None:
    found = [stop.usual for stop in reported(restarts(0.2, 0.3, 0.25, 0.1, 0.4).lines).stops]
    assert [verdict(each) for each in found] == [
        "first of its kind",
        "worse than 1 of 1",
        "worse than 1 of 2",
        "worse than none of 3",
        "worse than all 4",
    ]
    assert "1 stop cost more for each partition" in headline(reported(restarts(0.2, 0.3, 0.25, 0.1, 0.4).lines))
    assert "cost more for each partition" not in headline(reported(restarts(0.2, 0.3).lines))


def snapshot(folder: Path, *, min_isr: int | None = 2) -> Snapshot:
    """Broker 1 leads three partitions, one of them alone in its ISR; broker 2 leads one; racks a and b."""
    header = Header(FORMAT, 1, "c", 1, 1, 1, us(WALL_S + 400), "election")
    brokers = [BrokerLine(broker, True, 1, rack="a" if broker < 3 else "b") for broker in (1, 2, 3)]
    isrs = [[1, 2, 3], [1, 2], [1], [2, 3]]
    line = PartitionsLine(
        "orders", [0, 1, 2, 3], [[1, 2, 3]] * 4, [1, 1, 1, 2], [0] * 4, [0] * 4, isrs, min_isr=min_isr
    )
    return read_snapshot(write(folder / "s", [header, *brokers, line, Trailer(5, 4, 3, 1, 1)]))


def foretold(of: Snapshot | None, term: Term) -> Result:
    return reported(term.lines, USUAL, known=Known({}, {}, snapshot=of))


def test_the_cost_of_a_stop_now_is_counted_and_foretold_by_the_median_of_the_last_ones(tmp_path: Path) -> None:
    now = foretold(snapshot(tmp_path), restarts(0.2, 0.4, 0.3, planned=1)).now
    assert now is not None
    assert (now.at_us, now.planned_stops, now.unplanned_stops) == (us(WALL_S + 400), 1, 3)
    rack, one, *_ = now.losses
    assert (rack.lost, rack.brokers, rack.offline, rack.led) == ("rack a", [1, 2], 2, 4)
    assert (one.lost, one.led, one.offline, one.named, one.under_min_isr) == ("broker 1", 3, 1, ["orders-2"], 1)
    assert one.planned_s == pytest.approx(0.3)
    assert one.unplanned_s == pytest.approx(0.9)
    assert one.unplanned_at_most_s == pytest.approx(3.9), "a session of a second more for each of three"
    assert "1 (orders-2)" in now_section(now)


def test_what_is_not_known_is_not_foretold(tmp_path: Path) -> None:
    now = foretold(snapshot(tmp_path, min_isr=None), Term().begin(0, 1, 2, 3).add(9, "CTL_PHASE")).now
    assert now is not None
    assert {(each.under_min_isr, each.planned_s, each.unplanned_s) for each in now.losses} == {(None, None, None)}
    assert "about" not in now_section(now)
    assert "give --snapshot" in now_section(reported(restarts(0.2).lines, known=NOTHING).now)


@pytest.mark.parametrize(
    ("here", "there", "said"),
    [
        ((0.3,), (0.2,), "A stop cost 0.30 s without a leader in sum, 50% more than in the other one (0.20 s)"),
        ((0.1, 0.2), (0.3,), "A stop cost 0.15 s without a leader in sum, 50% less than"),
        ((0.2,), (0.205,), "about as much as in the other one"),
        ((), (0.2,), ""),
        ((0.2,), (), ""),
    ],
)
def test_a_report_beside_another_one_says_whether_stops_cost_more(
    here: tuple[float, ...], there: tuple[float, ...], said: str
) -> None:
    one, other = (reported(restarts(*took).lines) for took in (here, there))
    text = against(replace(one, against=compared(one, other)))
    assert said in text
    assert bool(said) == ("A stop cost" in text)
