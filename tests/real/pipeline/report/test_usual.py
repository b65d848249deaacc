"""A stop beside the last ones of its kind, and what the next one would cost."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from pipeline.inputs import Snapshot
from pipeline.report.against import compared
from pipeline.report.asking import Wanted
from pipeline.report.merging import Known
from pipeline.report.now_section import now_section
from pipeline.report.result import Result, Usual
from pipeline.report.sections import against, headline, verdict
from pipeline.snapshot_file import read_snapshot
from state_machines.journal.snapshot import FORMAT, BrokerLine, Header, PartitionsLine, Trailer
from tests.real.pipeline.report.kit import NOTHING, WALL_S, Term, reported, us
from tests.real.pipeline.test_inputs import write

KNOWN = Wanted(session_ms=1_000, tick_ms=0)


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
    return reported(term.lines, KNOWN, known=Known({}, {}, snapshot=of))


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
