"""Regions are looked at once in a period, and once servers have ceased to come and go."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from state_machines.regions.balancing.cluster import Cluster
from state_machines.regions.balancing.pace import IDLE_MAX, Due, Pace
from state_machines.regions.balancing.simple import Simple, is_uneven

PERIOD, JOINS = 300_000, 30_000
A, B, C = ("a", 1, 1.0), ("b", 1, 1.0), ("c", 1, 1.0)


def test_a_look_is_due_in_each_period_while_servers_stay_the_same() -> None:
    pace = Pace(PERIOD, JOINS, 0)
    assert [pace.is_due({A, B}, at) for at in (0, JOINS - 1, JOINS)] == [False, False, True]
    pace.looked(JOINS)
    assert [pace.is_due({A, B}, JOINS + at) for at in (JOINS, PERIOD - 1, PERIOD)] == [False, False, True]


def test_a_rolling_restart_puts_the_look_off_until_its_end_and_for_two_periods_at_most() -> None:
    pace = Pace(PERIOD, JOINS, 0)
    for at in range(0, 200_000, 20_000):
        assert not pace.is_due({A} if at % 40_000 else {A, B}, at)
    assert not pace.is_due({A}, 180_000 + JOINS - 1)
    assert pace.is_due({A}, 180_000 + JOINS)
    found = next(at for at in range(0, 10 * PERIOD, 20_000) if pace.is_due({A} if at % 40_000 else {A, B}, at))
    assert found == 2 * PERIOD, "a server that comes and goes for ever hinders no balance for ever"


def test_without_a_time_for_joins_the_period_alone_counts() -> None:
    pace = Pace(PERIOD, 0, 0)
    assert [pace.is_due(some, at) for some, at in (({A}, 1), ({A, B}, PERIOD - 1), ({A}, PERIOD))] == [
        False,
        False,
        True,
    ]


def test_what_hinders_a_balance_is_looked_at_again_soon() -> None:
    pace = Pace(PERIOD, JOINS, 0)
    pace.is_due({A}, 0)
    pace.hindered(JOINS)
    assert [pace.is_due({A}, 2 * JOINS - 1), pace.is_due({A}, 2 * JOINS)] == [False, True]


def test_balances_that_move_nothing_come_less_and_less_often_until_servers_change() -> None:
    pace = Pace(PERIOD, JOINS, 0)
    pace.is_due({A, B}, 0)
    pace.looked(0)
    waits = []
    for _ in range(6):
        pace.ended(moved=False)
        waits.append(next(n for n in range(1, 100) if pace.is_due({A, B}, n * PERIOD)))
    assert waits == [2, 4, 8, IDLE_MAX, IDLE_MAX, IDLE_MAX]
    pace.ended(moved=True)
    assert pace.is_due({A, B}, PERIOD)
    pace.ended(moved=False)
    assert not pace.is_due({A, C}, 1)
    assert pace.is_due({A, C}, 1 + JOINS)


def test_a_balance_that_moves_nothing_for_longer_than_a_period_brings_the_next_one_no_earlier() -> None:
    pace = Pace(PERIOD, JOINS, 0)
    pace.is_due({A, B}, 0)
    pace.looked(0)
    for at in (PERIOD, PERIOD + JOINS):
        assert pace.is_due({A, B}, at)
        pace.hindered(at)
    pace.ended(moved=False)
    assert not pace.is_due({A, B}, PERIOD + 2 * JOINS)
    assert pace.is_due({A, B}, PERIOD + JOINS + 2 * PERIOD)


def test_servers_that_came_during_a_balance_are_looked_at_after_its_end_whatever_it_has_moved() -> None:
    pace = Pace(PERIOD, JOINS, 0)
    pace.is_due({A}, 0)
    pace.looked(0)
    assert not pace.is_due({A, B}, JOINS)
    assert pace.is_due({A, B}, 2 * JOINS)
    pace.hindered(2 * JOINS)
    pace.ended(moved=False)
    assert pace.is_due({A, B}, 3 * JOINS)


def test_the_time_of_the_next_look_is_known_and_what_brings_it() -> None:
    pace = Pace(PERIOD, JOINS, 0)
    found = [(pace.due, pace.next_ms)]
    pace.is_due({A}, 5_000)
    found.append((pace.due, pace.next_ms))
    pace.looked(40_000)
    pace.hindered(50_000)
    found.append((pace.due, pace.next_ms))
    pace.looked(80_000)
    pace.ended(moved=False)
    found.append((pace.due, pace.next_ms))
    assert found == [
        (Due.PERIOD, PERIOD),
        (Due.CHANGE, 5_000 + JOINS),
        (Due.HINDERED, 50_000 + JOINS),
        (Due.IDLE, 80_000 + 2 * PERIOD),
    ]


@pytest.mark.parametrize(
    ("counts", "slop", "expected"),
    [
        ((14, 13, 13, 0), 0.2, True),
        ((10, 10, 10, 10, 0), 0.2, True),
        ((12, 10, 8, 10), 0.2, False),
        ((13, 10, 7, 10), 0.2, True),
        ((1, 0, 0, 0), 0.2, False),
        ((2, 0, 0, 0), 0.2, True),
        ((3, 2), 0.0, False),
        ((4, 2), 0.0, True),
        ((0, 0), 0.2, False),
        ((2, 0), 0.2, True),
        ((19, 1), 1.0, False),
        ((2, 2, 1, 1, 0), 0.2, True),
        ((2, *(1,) * 7, 0, 0), 0.2, True),
        ((12, *(10,) * 8, 8), 0.1, True),
    ],
)
def test_servers_are_uneven_where_one_misses_its_share_by_more_than_the_slop(
    counts: tuple[int, ...], slop: float, expected: bool
) -> None:
    assert is_uneven(counts, (1.0,) * len(counts), slop) is expected


def test_a_server_with_a_larger_weight_has_a_larger_share() -> None:
    assert not is_uneven((10, 1), (10.0, 1.0), 0.0)
    assert is_uneven((10, 1), (1.0, 1.0), 0.2)
    assert not is_uneven((10, 0), (1.0, 0.1), 0.2), "a share of less than a region, which no plan gives"
    assert is_uneven((10, 0), (1.0, 0.2), 0.2)
    assert is_uneven((8, 2, 0), (1.0, 1.0, 0.1), 0.2)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from([0.1, 0.3, 1.0, 2.5, 333.333333])), min_size=2, max_size=8),
    st.booleans(),
    st.sampled_from([0.0, 0.1, 0.2, 1.0]),
)
@example([(0, 0.1), (0, 1.0), (0, 1.0), (14, 2.5), (2, 0.3), (13, 0.1)], True, 0.0)
def test_what_is_uneven_has_moves_and_is_even_after_them(
    servers: list[tuple[int, float]], by_table: bool, slop: float
) -> None:
    """Else a look would plan in vain in each period, or move the same regions again and again."""
    at = array("q", [place for place, (count, _) in enumerate(servers) for _ in range(count)])
    tables = array("q", [number % 3 for number in range(len(at))])
    none, zeros = array("d", [0.0] * len(at)), array("q", [0] * len(at))
    cluster = Cluster(
        *(array("q", range(len(at))), at, tables, bytearray(len(at)), none, none, zeros, zeros),
        servers=tuple(map(str, range(len(servers)))),
        targets=b"\x01" * len(servers),
        weights=tuple(weight for _, weight in servers),
        tables=("t", "u", "v"),
    )
    balancer = Simple(by_table, slop=slop)
    plan = balancer.plan(cluster, 0)
    assert plan.moves or not plan.due or by_table
    for one in plan.moves:
        at[one.region] = int(one.to)
    after = balancer.plan(cluster, 0)
    assert not (after.moves and after.due)
    assert by_table or not (after.moves or after.due)
