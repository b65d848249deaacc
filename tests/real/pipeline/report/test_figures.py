"""ISR minutes, recovery, elections and reassignments, in small journals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline.report.asking import Beside, Wanted
from pipeline.report.merging import Known
from pipeline.report.result import Recovered
from pipeline.report.summing import Spread
from pipeline.report.terms import NONE as UNKNOWN
from tests.real.pipeline.report.kit import WALL_S, Term, reported, us

NEW = {"isr0": None, "leader0": None}


def led() -> Term:
    return Term().begin(0, 1, 2, 3).leader(1, None, 1, "new_topic")


def isr(term: Term, at_s: float, before: list[int], after: list[int], **fields: Any) -> Term:
    leaders = {"isr0": before, "isr1": after} | fields
    return term.leader(at_s, 1, 1, "isr_by_leader", "ISR", **leaders)


Steps = list[tuple[float, int]]


@pytest.mark.parametrize(
    ("steps", "under_min_s", "unknown_s"),
    [
        ([], None, 50.0),
        ([(-5, 2)], 10.0, 0.0),
        ([(-5, 1)], 0.0, 0.0),
        ([(25, 2)], 5.0, 25.0),
        ([(-5, 3), (15, 2), (25, 1)], 10.0, 0.0),
        ([(-5, 3), (15, UNKNOWN), (22, 2)], 13.0, 7.0),
        ([(60, 2)], None, 50.0),
    ],
)
def test_a_setting_counts_from_its_snapshot_until_another_one(
    steps: Steps, under_min_s: float | None, unknown_s: float
) -> None:
    """10 s with two of three replicas, then 10 s with one; before the first snapshot nothing is known."""
    term = isr(isr(led(), 10, [1, 2, 3], [1, 2]), 20, [1, 2], [1])
    isr(term, 30, [1], [1, 2, 3]).add(50, "CTL_PHASE")
    [topic] = reported(term.lines, beside=min_isr(orders=steps)).topics
    assert topic.under_target_s == pytest.approx(20.0)
    assert topic.under_min_s == (None if under_min_s is None else pytest.approx(under_min_s, abs=0.05))
    assert topic.min_isr_unknown_s == pytest.approx(unknown_s)


def min_isr(**topics: Steps) -> Beside:
    """Makes settings from seconds of the wall clock on."""
    return Beside({name: [(us(WALL_S + at_s), least) for at_s, least in steps] for name, steps in topics.items()})


def test_replicas_that_are_being_added_are_no_target() -> None:
    added = {"replicas": [1, 2, 3, 4, 5], "adding": [4, 5]}
    term = isr(led(), 10, [1, 2, 3], [1, 2, 3], **added).add(30, "CTL_PHASE")
    assert reported(term.lines).topics[0].under_target_s == 0.0


def test_before_its_first_row_a_partition_was_as_that_row_says() -> None:
    term = isr(Term().begin(0, 1, 2, 3), 10, [1, 2], [1, 2, 3]).add(30, "CTL_PHASE")
    assert reported(term.lines).topics[0].under_target_s == pytest.approx(10.02)


def stopped() -> Term:
    """Broker 1 leads by preference, dies at 10 s and is back at 20 s."""
    term = led().add(10, "BROKER_DOWN", broker=1, t_detect=us(10))
    return term.leader(10, 1, 2, "broker_failure", isr1=[2, 3]).told(10.03, 10.2, 2).add(20, "BROKER_UP", broker=1)


def test_a_stop_ends_with_the_last_replica_in_sync_and_the_preferred_leader_back() -> None:
    term = stopped().leader(25, 2, 2, "isr_by_leader", "ISR", isr0=[2, 3], isr1=[2, 3, 1])
    term.leader(40, 2, 1, "election").told(40.1, 40.2, 1).add(50, "CTL_PHASE")
    [stop] = reported(term.lines).stops
    assert stop.full == Recovered(1, 15.02, 0, 0)
    assert stop.back == Recovered(1, 30.02, 0, 0)
    assert stop.led == 1


def test_what_is_not_whole_again_is_counted() -> None:
    [stop] = reported(stopped().add(50, "CTL_PHASE").lines).stops
    assert (stop.full, stop.back) == (Recovered(1, None, 0, 1), Recovered(1, None, 0, 1))


def test_what_became_whole_in_missing_rows_has_no_time() -> None:
    """The row in which broker 1 is back in the ISR and leads again is missing: the next one shows both."""
    term = stopped().leader(60, 1, 3, "controlled_shutdown").add(70, "CTL_PHASE")
    [stop] = reported(term.lines).stops
    assert (stop.full, stop.back) == (Recovered(1, None, 1, 0), Recovered(1, None, 1, 0))


def test_the_next_stop_of_the_broker_ends_the_wait() -> None:
    term = stopped().add(30, "BROKER_DOWN", broker=1, t_detect=us(30)).add(35, "BROKER_UP", broker=1)
    term.leader(40, 2, 2, "isr_by_leader", "ISR", isr0=[2, 3], isr1=[2, 3, 1]).add(50, "CTL_PHASE")
    first, _ = reported(term.lines).stops
    assert first.full == Recovered(1, None, 0, 1)


@pytest.mark.parametrize(("at_s", "partitions"), [(49, 1), (51, 0)])
def test_an_isr_that_a_broker_leaves_long_after_it_came_back_is_not_of_its_stop(at_s: float, partitions: int) -> None:
    term = led().add(10, "BROKER_DOWN", broker=2, t_detect=us(10)).add(20, "BROKER_UP", broker=2)
    isr(isr(term, at_s, [1, 2, 3], [1, 3]), at_s + 5, [1, 3], [1, 2, 3]).add(90, "CTL_PHASE")
    [stop] = reported(term.lines).stops
    assert stop.full.partitions == partitions


def test_the_costs_of_a_window_add_up_where_a_stop_began_before_it() -> None:
    """At 15 s broker 1 is down, at 22 s it is back, but does not lead yet."""
    term = led().add(10, "BROKER_DOWN", broker=1, t_detect=us(10)).leader(10, 1, -1, "broker_failure", isr1=[1])
    term.add(20, "BROKER_UP", broker=1).leader(30, -1, 1, "broker_return", isr1=[1]).told(30.1, 30.5, 1)
    for since_s in (5, 15, 22):
        result = reported(term.add(50, "CTL_PHASE").lines, Wanted(us(WALL_S + since_s)))
        of_stops = sum(stop.cost.known_s for stop in result.stops)
        assert result.cost.known_s > 0
        assert result.cost.known_s == pytest.approx(of_stops + result.outside_stops.known_s)
    down = led().add(10, "BROKER_DOWN", broker=1, t_detect=us(10)).add(50, "CTL_PHASE")
    assert len(reported(down.lines, Wanted(us(WALL_S + 30))).stops) == 1, "it is still down"


def test_a_prefix_chooses_what_a_stop_concerned_and_what_was_moved() -> None:
    term = stopped().leader(25, 2, 2, "isr_by_leader", "ISR", isr0=[2, 3], isr1=[2, 3, 1]).add(50, "CTL_PHASE")
    for prefix, count in (("ord", 1), ("pay", 0)):
        [stop] = reported(term.lines, Wanted(topic_prefix=prefix)).stops
        assert (stop.led, stop.full.partitions, stop.back.partitions) == (count, count, count)
        assert len(reported(moved().lines, Wanted(topic_prefix=prefix)).moves) == count


def test_a_topic_of_the_snapshot_without_rows_was_always_available() -> None:
    known = Known({"orders": 1, "quiet": 4}, {})
    result = reported(stopped().add(100, "CTL_PHASE").lines, beside=min_isr(quiet=[(0, 2)]), known=known)
    assert [topic.topic for topic in result.topics] == ["orders", "quiet"]
    quiet = result.topics[1]
    assert (quiet.partitions, quiet.availability, quiet.nines, quiet.under_min_s) == (4, 1.0, None, 0.0)


def test_elections_have_latencies_by_reason() -> None:
    term = stopped().leader(40, 2, 1, "election", unclean=True).told(40.1, 40.5, 1).add(50, "CTL_PHASE")
    result = reported(term.lines)
    by_reason = {each.reason: each for each in result.elections}
    assert by_reason.keys() == {"new_topic", "broker_failure", "election"}
    assert by_reason["election"].committed.max_ms == 20.0
    assert by_reason["election"].acknowledged.max_ms == 500.0
    assert by_reason["broker_failure"].acknowledged.p50_ms == 200.0
    assert by_reason["new_topic"].acknowledged.count == 1, "the request after the failure is later, too"
    assert [(one.topic, one.partition) for one in result.unclean] == [("orders", 0)]


def test_a_cause_after_its_election_is_no_latency() -> None:
    term = led().leader(5, 1, 2, "election", t_detect=us(9_999)).add(50, "CTL_PHASE")
    found = {each.reason: (each.committed.count, each.untimed) for each in reported(term.lines).elections}
    assert found == {"new_topic": (1, 0), "election": (0, 1)}


def moved() -> Term:
    adding = {"replicas": [4, 5, 1], "adding": [4, 5], "removing": [1]}
    term = isr(led(), 10, [1], [1], **adding)
    return isr(term, 30, [1, 4, 5], [4, 5], replicas=[4, 5]).add(50, "CTL_PHASE")


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [({}, (None, 1, None)), ({("orders", 0): 1_000}, (2_000, 0, 100)), ({("x", 0): 9}, (None, 1, None))],
)
def test_bytes_of_a_reassignment(
    sizes: dict[tuple[str, int], int], expected: tuple[int | None, int, float | None]
) -> None:
    """Two replicas are added in 20 s; a size that is not known is counted, and is no zero."""
    [move] = reported(moved().lines, known=Known({}, sizes)).moves
    assert (move.partitions, move.unfinished, move.added, move.longest_s) == (1, 0, 2, 20.0)
    assert (move.bytes, move.size_unknown, move.rate_bytes_per_s) == expected


def test_plans_have_their_begin_and_end() -> None:
    plan = {"pid": 7, "root": 7, "procedure": "reassign"}
    term = moved().add(5, "PROC_STATE", to_state="RUNNABLE", **plan)
    term.add(40, "PROC_STATE", to_state="SUCCESS", result="1 of 1 partitions moved", **plan)
    [found] = reported(term.lines).plans
    assert (found.pid, found.state, found.result) == (7, "SUCCESS", "1 of 1 partitions moved")
    assert found.end_us is not None
    assert found.end_us - found.begin_us == us(35)


def test_a_topic_has_the_partitions_of_the_snapshot() -> None:
    term = stopped().add(100, "CTL_PHASE")
    alone, whole = (
        reported(term.lines, Wanted(session_ms=1), known=Known(counts, {})).topics for counts in ({}, {"orders": 10})
    )
    assert (alone[0].partitions, whole[0].partitions) == (1, 10)
    assert alone[0].availability == pytest.approx(1 - 0.2 / 100)
    assert whole[0].nines == pytest.approx((alone[0].nines or 0) + 1)


@pytest.mark.parametrize("count", [1, 10, 10_000])
def test_quantiles_are_one_percent_too_long_at_most(count: int) -> None:
    drawn = np.random.default_rng(count).lognormal(10, 2, count).astype(np.int64)
    half = len(drawn) // 2
    spread = Spread.of(drawn[:half]).joined(Spread.of(drawn[half:]))
    assert (spread.total, spread.longest_us) == (count, drawn.max())
    for share in (0.5, 0.9, 0.99):
        exact = float(np.quantile(drawn, share, method="inverted_cdf"))
        assert exact * 0.999 <= spread.quantile_us(share) <= exact * 1.011
