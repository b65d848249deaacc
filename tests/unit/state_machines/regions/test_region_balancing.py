"""The stochastic balancer: its costs are those of a slow judge, each change costs what it says, and plans only help."""

from __future__ import annotations

import random
from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state_machines.regions.balancing import costs
from state_machines.regions.balancing.cluster import BYTES_MAX, BalancePlan, Cluster, clamped
from state_machines.regions.balancing.costs import WEIGHTS, framed, judged, mean, total
from state_machines.regions.balancing.ordering import Ordering
from state_machines.regions.balancing.placing import Placing
from state_machines.regions.balancing.steps import walk
from state_machines.regions.balancing.stochastic import Stochastic

ALMOST = 1e-9
LARGE = 10.0


def cluster(
    servers: Sequence[int],
    tables: Sequence[int] = (),
    *,
    count: int = 0,
    loads: Sequence[float] = (),
    held: Sequence[int] = (),
    cordoned: Sequence[int] = (),
    weights: Sequence[float] = (),
) -> Cluster:
    """Makes a cluster: the server, and the table, of each region. ``loads``: reads; other loads are made of them."""
    tables, loads = tables or [0] * len(servers), loads or [0.0] * len(servers)
    count = count or max(servers, default=0) + 1
    return Cluster(
        array("q", range(1, len(servers) + 1)),
        array("q", servers),
        array("q", tables),
        bytearray(at in held for at in range(len(servers))),
        array("d", loads),
        array("d", [one / 2 for one in loads]),
        array("q", [int(one) ** 2 for one in loads]),
        array("q", [int(one) % 3 for one in loads]),
        tuple(f"s{at}" for at in range(count)),
        bytes(at not in cordoned for at in range(count)),
        tuple(weights or [1.0] * count),
        tuple(f"t{at}" for at in range(max(tables, default=0) + 1)),
    )


@st.composite
def clusters(draw: st.DrawFn, regions: int = 7) -> Cluster:
    count = draw(st.integers(1, 4))
    servers = draw(st.lists(st.integers(0, count - 1), max_size=regions))
    each = st.integers(0, len(servers) - 1) if servers else st.nothing()
    return cluster(
        servers,
        [draw(st.integers(0, 2)) for _ in servers],
        count=count,
        loads=[draw(st.sampled_from((0.0, 1.0, 2.5, 40.0))) for _ in servers],
        held=draw(st.lists(each, max_size=3)) if servers else (),
        cordoned=draw(st.lists(st.integers(0, count - 1), max_size=1)),
        weights=[draw(st.sampled_from((0.5, 1.0, LARGE))) for _ in range(count)],
    )


# -- the slow judge: best and worst by a look at all placements, each cost by its definition


def slow_total(found: Cluster, where: dict[int, int]) -> float:
    """Returns the total; ``where``: the server of each region, by row."""
    targets = [at for at, is_target in enumerate(found.targets) if is_target]
    rows = [row for row, server in enumerate(found.server) if server in targets]
    if not rows:
        return 0.0

    def whole(some: list[int]) -> float | None:
        all_ = [distance(some, [1.0] * len(some), dict(zip(some, places, strict=True)))
                for places in product(targets, repeat=len(some))]  # fmt: skip
        return scaled(distance(some, [1.0] * len(some), where), min(all_), max(all_))

    def distance(some: list[int], amounts: Sequence[float], places: dict[int, int]) -> float:
        weight = sum(found.weights[one] for one in targets)
        has = dict.fromkeys(targets, 0.0)
        for row, amount in zip(some, amounts, strict=True):
            has[places[row]] += amount
        return sum(abs(has[one] - sum(amounts) * found.weights[one] / weight) for one in targets)

    def load(amounts: Sequence[float]) -> float:
        mine = [amounts[row] for row in rows]
        most = max(distance(rows, mine, dict.fromkeys(rows, one)) for one in targets)
        return scaled(distance(rows, mine, where), 0.0, most) or 0.0

    tables = [whole([row for row in rows if found.table[row] == one]) for one in range(len(found.tables))]
    skews = [one for one in tables if one is not None]
    moved = sum(where[row] != found.server[row] for row in rows) / len(rows)
    values = [500 * (whole(rows) or 0.0), 35 * sum(skews) / max(1, len(skews)), 7 * moved]
    figures: list[Sequence[float]] = [found.reads, found.writes, found.size_bytes, found.files]
    return sum(values) + 5 * sum(load(one) for one in figures)


def scaled(value: float, least: float, most: float) -> float | None:
    """Returns a value between least and most as a part; None where all placements are equal."""
    return (value - least) / (most - least) if most - least > ALMOST else None


def after(found: Cluster, plan: BalancePlan) -> dict[int, int]:
    """Returns the server of each region once a plan is carried out."""
    where = dict(enumerate(found.server))
    for move in plan.moves:
        where[found.ids.index(move.region)] = found.servers.index(move.to)
    return where


@given(clusters(6), st.integers(0, 1 << 20))
def test_costs_are_those_of_a_judge_that_looks_at_all_placements(found: Cluster, seed: int) -> None:
    frame = framed(found)
    draw = random.Random(seed)
    where = [draw.randrange(len(frame.targets)) for _ in frame.rows]
    places = dict(zip(frame.rows, (frame.targets[one] for one in where), strict=True))
    assert total(judged(found, frame, where)) == pytest.approx(slow_total(found, places), abs=ALMOST)
    assert all(0 <= one.value <= 1 for one in judged(found, frame, where))


def change(placing: Placing, draw: random.Random) -> float:
    """Moves a region, or has two change places; returns what that costs by itself."""
    one, other, to = (draw.randrange(most) for most in (len(placing.where), len(placing.where), placing.servers))
    if draw.random() < 0.5 and to != placing.where[one]:
        gain = placing.gain(one, to)
        placing.move(one, to)
        return gain
    if placing.where[one] != placing.where[other]:
        gain = placing.fixed_of_swap(one, other) + placing.by_load(one, placing.where[other], other)
        placing.swap(one, other)
        return gain
    return 0.0


@given(clusters(40), st.integers(0, 1 << 20), st.sampled_from((1, 8, costs.CELLS_MAX)))
def test_a_change_costs_the_difference_of_the_judge_before_and_after(found: Cluster, seed: int, cells: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "CELLS_MAX", cells)
        frame = framed(found)
    placing, draw = Placing(found, frame, frame.home), random.Random(seed)
    for _ in range(20 if frame.rows else 0):
        before = total(judged(found, frame, placing.where))
        gain = change(placing, draw)
        assert total(judged(found, frame, placing.where)) - before == pytest.approx(gain, abs=ALMOST)


# -- plans


@given(clusters(40), st.integers(), st.sampled_from((0, 1, 2, 5, 100)), st.sampled_from((0.0, 0.001, 0.1)))
def test_a_plan_lowers_the_total_and_moves_only_what_may_move(
    found: Cluster, seed: int, most: int, least: float
) -> None:
    frame = framed(found)
    balancer = Stochastic(moves_max=most, gain_min=least)
    plan = balancer.plan(found, seed)
    assert len(plan.moves) <= most
    assert len({move.region for move in plan.moves}) == len(plan.moves)
    for move in plan.moves:
        row = found.ids.index(move.region)
        assert found.servers[found.server[row]] == move.source != move.to
        assert not found.held[row]
        assert {found.targets[found.servers.index(one)] for one in (move.source, move.to)} == {1}
    where = [frame.targets.index(after(found, plan)[row]) for row in frame.rows]
    assert plan.before == judged(found, frame, frame.home)
    assert plan.after == judged(found, frame, where)
    assert total(plan.after) < total(plan.before) if plan.moves else plan.after == plan.before
    assert mean(plan.before) - mean(plan.after) >= least or not plan.moves
    assert balancer.plan(found, seed) == plan


@given(clusters(40), st.integers())
def test_each_random_step_lowers_the_total(found: Cluster, seed: int) -> None:
    frame = framed(found)
    last, taken = total(judged(found, frame, frame.home)), 0
    for steps in range(0, 60, 3):
        placing = Placing(found, frame, frame.home)
        count = walk(placing, steps, seed)
        now = total(judged(found, frame, placing.where))
        assert now < last if count > taken else now == pytest.approx(last, abs=ALMOST)
        last, taken = now, count


ALL = Stochastic(gain_min=0)
"""Makes moves, however little they help."""


def some_clusters(count: int) -> list[Cluster]:
    draw = random.Random(7)
    return [
        cluster(
            [draw.choice((0, 0, 1, 2)) for _ in range(6)],
            [draw.randrange(2) for _ in range(6)],
            count=3,
            loads=[float(draw.choice((0, 1, 5, 20))) for _ in range(6)],
            weights=draw.choice(((), (1.0, 2.0, 1.0))),
        )
        for _ in range(count)
    ]


def test_small_clusters_are_placed_as_the_best_of_all_placements_is() -> None:
    best_of, worse = list[float](), 0
    for found in some_clusters(40):
        frame = framed(found)
        best = min(total(judged(found, frame, where)) for where in product(range(3), repeat=6))
        got = total(ALL.plan(found, 1).after)
        assert got >= best - ALMOST
        worse += got > best + ALMOST
        best_of.append(got / best if best else 1.0)
    assert worse <= 6, "a random search may stay beside the best"
    assert max(best_of) < 1.2


def test_a_server_ten_times_as_large_gets_ten_times_as_many_regions() -> None:
    found = cluster([0] * 130, count=4, loads=[1.0] * 130, weights=(1.0, LARGE, 1.0, 1.0))
    assert Counter(after(found, Stochastic().plan(found, 1)).values()) == {0: 10, 1: 100, 2: 10, 3: 10}


def test_a_hundred_tables_with_one_region_each_are_spread_by_their_number_alone() -> None:
    found = cluster([0] * 100, list(range(100)), count=10)
    plan = Stochastic().plan(found, 1)
    assert set(Counter(after(found, plan).values()).values()) == {10}
    assert [one.value for one in (*plan.before, *plan.after) if one.name == costs.TABLES] == [0, 0]


def test_tables_are_even_where_servers_are_already() -> None:
    """Each of two servers has all regions of one table: only regions that change places help."""
    found = cluster([0] * 10 + [1] * 10, [0] * 10 + [1] * 10)
    where = after(found, Stochastic().plan(found, 1))
    assert Counter((found.table[row], at) for row, at in where.items()) == dict.fromkeys(product((0, 1), (0, 1)), 5)


def test_the_rest_is_spread_around_what_stays() -> None:
    """Held regions of one table fill a server; regions of the other go to make up for them."""
    found = cluster([0] * 10 + [0] * 30, [0] * 10 + [1] * 30, count=4, held=range(10))
    assert Counter(after(found, Stochastic().plan(found, 1)).values()) == dict.fromkeys(range(4), 10)


NOTHING = {
    "one server": cluster([0] * 5),
    "no region": cluster([], count=3),
    "no server": cluster([]),
    "all are held": cluster([0] * 10, count=3, held=range(10)),
    "all servers are cordoned": cluster([0] * 10, count=3, cordoned=range(3)),
    "all others are cordoned": cluster([0] * 10, count=3, cordoned=(1, 2)),
    "the server that has too many is cordoned": cluster([0] * 9 + [1, 2], count=3, cordoned=(0,)),
    "all is even": cluster([0, 1, 2] * 4),
}


@pytest.mark.parametrize("found", NOTHING.values(), ids=NOTHING.keys())
def test_nothing_moves_where_nothing_can_be_better(found: Cluster) -> None:
    plan = Stochastic().plan(found, 1)
    assert plan.moves == ()
    assert plan.before == plan.after
    assert {one.name: one.weight for one in plan.after} == WEIGHTS


# -- order


def test_a_plan_that_is_cut_off_has_helped_as_much_as_its_moves_can() -> None:
    found = cluster([0] * 20 + [1] * 8 + [2] * 2, count=3)
    costs_of = [total(Stochastic(moves_max=most).plan(found, 1).after) for most in range(12)]
    assert costs_of == sorted(costs_of, reverse=True)
    assert len(set(costs_of[:11])) == 11, "each of ten moves helps"
    whole = Stochastic().plan(found, 1)
    assert Stochastic(moves_max=4).plan(found, 1).moves == whole.moves[:4]


def test_the_move_that_helps_most_comes_first() -> None:
    """All regions of table 0 are at the first server, so a move of one helps the table as well."""
    found = cluster([1] + [0] * 5, [1, 1, 1, 0, 0, 0], count=2, loads=[0.0, 50.0, 4.0, 3.0, 2.0, 1.0])
    frame, moves = framed(found), Stochastic().plan(found, 1).moves
    home = Placing(found, frame, frame.home)
    gains = [home.gain(move.region - 1, 1) for move in moves]
    assert len(set(gains)) == len(gains) > 1
    assert gains[0] == min(gains)


@given(clusters(40), st.integers(0, 1 << 20), st.sampled_from((1, 2, 3, 100)))
def test_of_moves_to_anywhere_those_are_made_that_help_alone_in_pairs_or_all_together(
    found: Cluster, seed: int, most: int
) -> None:
    frame, draw = framed(found), random.Random(seed)
    if not frame.rows:
        return
    wanted = [draw.randrange(len(frame.targets)) for _ in frame.rows]
    order = Ordering(Placing(found, frame, frame.home), wanted, most)
    order.run()
    where, totals = frame.home[:], [total(judged(found, frame, frame.home))]
    for one, _ in order.made:
        where[one] = wanted[one]
        totals.append(total(judged(found, frame, where)))
    assert len(order.made) <= most
    assert totals[-1] < totals[0] if order.made else len(totals) == 1
    if len(order.made) < sum(one != home for one, home in zip(wanted, frame.home, strict=True)):
        steps = zip(totals, totals[1:], totals[2:], strict=False)
        assert all(min(then, later) < now for now, then, later in steps), (
            "what is not all of it helps at every second move"
        )


def test_two_regions_change_places_together_or_not_at_all() -> None:
    found = cluster([0, 0, 1, 1], loads=[100.0, 100.0, 1.0, 1.0])
    assert Stochastic(moves_max=1).plan(found, 1).moves == ()
    plan = Stochastic(moves_max=2).plan(found, 1)
    assert Counter(move.source for move in plan.moves) == {"s0": 1, "s1": 1}
    assert {move.why for move in plan.moves} == {costs.WHY["bytes"]}, "bytes differ most here"


def test_regions_stay_where_moves_would_help_too_little() -> None:
    """Loads are a little uneven, as they are again after each balance; one more uneven server is worth a plan."""
    loads = [100.0 + at % 7 for at in range(300)]
    found = cluster([at % 3 for at in range(300)], loads=loads)
    assert ALL.plan(found, 1).moves
    present = judged(found, framed(found), framed(found).home)
    assert Stochastic().plan(found, 1) == BalancePlan((), present, present)
    loads = [one * (4 if at % 3 == 0 else 1) for at, one in enumerate(loads)]
    assert Stochastic().plan(cluster([at % 3 for at in range(300)], loads=loads), 1).moves


def test_two_regions_that_are_alike_stay_where_they_are() -> None:
    found = cluster([0, 1], loads=[5.0, 5.0])
    frame = framed(found)
    order = Ordering(Placing(found, frame, frame.home), [1, 0], 2)
    order.run()
    assert order.made == []


def test_the_reason_of_a_move_is_the_cost_that_it_lowers_most() -> None:
    crowded = Stochastic().plan(cluster([0] * 8, count=2), 1)
    assert {move.why for move in crowded.moves} == {costs.WHY[costs.REGIONS]}
    uneven = Stochastic().plan(cluster([0] * 10 + [1] * 10, [0] * 10 + [1] * 10), 1)
    assert {move.why for move in uneven.moves} == {costs.WHY[costs.TABLES]}


# -- figures


@pytest.mark.parametrize(
    ("figure", "taken"),
    [
        (-1.0, 0),
        (float("nan"), 0),
        (float("-inf"), 0),
        (0.0, 0),
        (7, 7),
        (1 << 60, BYTES_MAX),
        (float("inf"), BYTES_MAX),
    ],
)
def test_a_figure_that_cannot_be_is_clamped(figure: float, taken: float) -> None:
    assert clamped(figure, BYTES_MAX) == taken


def test_one_server_that_lies_keeps_no_other_from_being_balanced() -> None:
    found = cluster([0] * 30, count=3, loads=[float(costs.CELLS_MAX)] + [0.0] * 29)
    assert Counter(after(found, Stochastic().plan(found, 1)).values()) == {0: 10, 1: 10, 2: 10}
