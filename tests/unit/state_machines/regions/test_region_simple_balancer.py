"""The simple balancer spreads regions to within one; held regions, and servers without target, stay as they are."""

from __future__ import annotations

import tracemalloc
from array import array
from collections import Counter
from itertools import product
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state_machines.regions.balancing import costs
from state_machines.regions.balancing.checks import SKIPPED, Bar, Seen, Skip, bar_of, skip_of
from state_machines.regions.balancing.cluster import MOVES_MAX, BalancePlan, Cluster
from state_machines.regions.balancing.simple import Simple
from state_machines.regions.entities import Region, Server, Table
from state_machines.regions.states import RegionState, ServerState, TableKind, TableState


def a_cluster(
    where: list[int],
    servers: int,
    *,
    tables: list[int] | None = None,
    held: tuple[int, ...] = (),
    targets: bytes = b"",
    weights: tuple[float, ...] = (),
) -> Cluster:
    """Returns regions 1, 2 and so on, each at a server; ``held``: rows that stay."""
    count = len(where)
    tables = tables or [0] * count
    return Cluster(
        array("q", range(1, count + 1)),
        array("q", where),
        array("q", tables),
        bytearray(one in held for one in range(count)),
        array("d", bytes(8 * count)),
        array("d", bytes(8 * count)),
        array("q", bytes(8 * count)),
        array("q", bytes(8 * count)),
        tuple(f"s{one}" for one in range(servers)),
        targets or b"\1" * servers,
        weights or (1.0,) * servers,
        tuple(f"t{one}" for one in range(max(tables, default=0) + 1)),
    )


def after(cluster: Cluster, plan: BalancePlan) -> list[int]:
    """Returns the server of each row once the plan is carried out."""
    found = list(cluster.server)
    for move in plan.moves:
        row = cluster.ids.index(move.region)
        assert cluster.servers[found[row]] == move.source, "a region moves once, from where it is"
        found[row] = cluster.servers.index(move.to)
    return found


def counts(cluster: Cluster, where: list[int], table: int | None = None) -> list[int]:
    """Returns how many regions each target has, of one table or of all."""
    found = Counter(one for one, of in zip(where, cluster.table, strict=True) if table in (None, of))
    return [found[at] for at, is_target in enumerate(cluster.targets) if is_target]


@st.composite
def clusters(draw: st.DrawFn, held: bool = False, offline: bool = False) -> Cluster:
    servers = draw(st.integers(1, 7))
    rows = st.lists(st.tuples(st.integers(0, servers - 1), st.integers(0, 3), st.booleans()), max_size=60)
    found = draw(rows)
    targets = draw(st.lists(st.sampled_from([0, 1]), min_size=servers, max_size=servers)) if offline else [1] * servers
    return a_cluster(
        [one[0] for one in found],
        servers,
        tables=[one[1] for one in found],
        held=tuple(row for row, one in enumerate(found) if held and one[2]),
        targets=bytes(targets),
    )


@pytest.mark.seed("S0-18")
@given(clusters(), st.booleans())
def test_after_the_plan_each_server_has_its_share_to_within_one(cluster: Cluster, by_table: bool) -> None:
    plan = Simple(by_table).plan(cluster, 0)
    where = after(cluster, plan)
    for table in [None, *(range(len(cluster.tables)) if by_table else ())]:
        found = counts(cluster, where, table)
        assert max(found) - min(found) <= 1, f"table {table}: {found}"
    assert all(one.value == pytest.approx(0.0, abs=1e-12) for one in plan.after), "floats are rounded"


@given(clusters())
def test_no_more_regions_move_than_are_above_the_share(cluster: Cluster) -> None:
    plan, found = Simple().plan(cluster, 0), counts(cluster, list(cluster.server))
    share, more = divmod(sum(found), len(found))
    best = sorted(found, reverse=True)
    above = sum(max(0, one - share - (number < more)) for number, one in enumerate(best))
    assert len(plan.moves) == (above if len(found) > 1 else 0)
    again = a_cluster(after(cluster, plan), len(found), tables=list(cluster.table))
    assert not Simple().plan(again, 0).moves, "what is even stays as it is"


@given(clusters(held=True, offline=True), st.booleans())
def test_held_regions_stay_and_servers_without_target_get_and_give_nothing(cluster: Cluster, by_table: bool) -> None:
    plan = Simple(by_table).plan(cluster, 0)
    held = {one for one, is_held in zip(cluster.ids, cluster.held, strict=True) if is_held}
    targets = {one for one, is_target in zip(cluster.servers, cluster.targets, strict=True) if is_target}
    assert not held & {one.region for one in plan.moves}
    assert {one.to for one in plan.moves} | {one.source for one in plan.moves} <= targets
    where = after(cluster, plan)
    lightest = min(counts(cluster, where), default=0)
    for at, is_target in enumerate(cluster.targets):
        mine = [row for row, server in enumerate(where) if server == at]
        if is_target and not by_table and len(mine) > lightest + 1:
            assert all(cluster.held[row] for row in mine), "what could have gone has gone"


@given(clusters(held=True, offline=True), st.booleans())
def test_the_plan_is_the_same_each_time_and_no_cost_grows(cluster: Cluster, by_table: bool) -> None:
    plan = Simple(by_table).plan(cluster, 1)
    assert Simple(by_table).plan(cluster, 2) == plan
    assert all(0 <= one.value <= 1 for one in (*plan.before, *plan.after))
    assert sum(one.value for one in plan.after) <= sum(one.value for one in plan.before) + 1e-9


def test_a_rolling_restart_of_four_servers_is_evened_out_and_the_newest_regions_go() -> None:
    cluster = a_cluster([0] * 14 + [1] * 13 + [2] * 13, 4)
    plan = Simple().plan(cluster, 0)
    assert counts(cluster, after(cluster, plan)) == [10, 10, 10, 10]
    assert {one.region for one in plan.moves} == {11, 12, 13, 14, 25, 26, 27, 38, 39, 40}, "the highest ids of each"
    assert {one.to for one in plan.moves} == {"s3"}
    assert plan.before[0].value > 0 == plan.after[0].value


def test_the_server_with_the_most_regions_gives_first_so_that_a_part_of_a_plan_helps_most() -> None:
    cluster = a_cluster([0] * 9 + [1] * 6, 5)
    sources = [one.source for one in Simple().plan(cluster, 0).moves]
    assert sources[:3] == ["s0", "s0", "s0"]
    assert Counter(sources) == {"s0": 6, "s1": 3}


def test_a_server_with_a_higher_weight_has_more_regions() -> None:
    cluster = a_cluster([0] * 12, 3, weights=(1.0, 2.0, 3.0))
    assert counts(cluster, after(cluster, Simple().plan(cluster, 0))) == [2, 4, 6]


@given(st.lists(st.integers(0, 30), min_size=2, max_size=6), st.data())
def test_shares_by_weight_are_rounded_down_or_up(have: list[int], data: st.DataObject) -> None:
    weights = tuple(
        data.draw(st.lists(st.sampled_from([0.1, 0.5, 1.0, 2.0, 3.0]), min_size=len(have), max_size=len(have)))
    )
    cluster = a_cluster([at for at, count in enumerate(have) for _ in range(count)], len(have), weights=weights)
    found = counts(cluster, after(cluster, Simple().plan(cluster, 0)))
    for count, weight in zip(found, weights, strict=True):
        share = sum(have) * weight / sum(weights)
        assert floor(share + 1e-6) <= count <= ceil(share - 1e-6)


def test_by_table_each_table_is_spread_and_then_all() -> None:
    tables = [0] * 4 + [1] * 4 + [2] * 2 + [3] * 2
    cluster = a_cluster([0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0], 4, tables=tables)
    together, each = (after(cluster, Simple(by_table).plan(cluster, 0)) for by_table in (False, True))
    assert counts(cluster, together) == counts(cluster, each) == [3, 3, 3, 3]
    assert max(counts(cluster, together, 1)) == 3, "s1 keeps three of the second table"
    assert [max(counts(cluster, each, one)) for one in range(4)] == [1, 1, 1, 1]


@pytest.mark.parametrize("servers", [0, 1])
def test_nothing_moves_without_two_targets(servers: int) -> None:
    cluster = a_cluster([0] * 5, 3, targets=bytes([one < servers for one in range(3)]))
    assert Simple().plan(cluster, 0) == BalancePlan((), (), ())


# -- conditions


@pytest.mark.seed("S0-17")
@pytest.mark.parametrize("force", [False, True])
def test_the_first_bar_that_holds_keeps_a_balance_from_beginning(force: bool) -> None:
    for holds in product((False, True), repeat=len(Bar)):
        off, level, running, crash, unheard, silent, servers, transit = holds
        targets = 1 if servers else 2
        seen = Seen(off, 7 * running, int(crash), int(unheard), int(silent), targets, int(transit), level)
        expected = [bar for bar, one in zip(Bar, holds, strict=True) if one and not (force and bar is Bar.TRANSIT)]
        assert bar_of(seen, force=force) == (expected[0] if expected else None)


def test_a_plan_is_cut_off_and_says_how_many_moves_are_left() -> None:
    found = a_cluster([0] * 30, 3)
    whole, part = Simple().plan(found, 0), Simple(moves_max=8).plan(found, 0)
    assert (len(whole.moves), whole.left) == (20, 0)
    assert (part.moves, part.left) == (whole.moves[:8], 12)
    assert (part.before, part.after) == (whole.before, whole.after)
    assert len(Simple().plan(a_cluster([0] * 6_000, 3), 0).moves) == MOVES_MAX


def test_the_smallest_tables_are_spread_together_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    found = a_cluster([0] * 2_000, 40, tables=[0, 1, 2, 3] * 250 + [*range(4, 1_004)])
    monkeypatch.setattr(costs, "CELLS_MAX", 4 * 40)
    tracemalloc.start()
    plan = Simple(by_table=True).plan(found, 0)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    where = after(found, plan)
    assert set(counts(found, where)) == {50}
    for table in range(4):
        shown = counts(found, where, table)
        assert max(shown) - min(shown) <= 1
    assert peak_bytes < 2_000_000, "lists for each pair of a table and a server"


def test_each_move_is_judged_again() -> None:
    table = Table("t", TableKind.USER, TableState.ENABLED, {}, [])
    servers = {one: Server(one, 1, "", "", ServerState.ONLINE, {}) for one in ("s1", "s2", "s3")}

    def judged(
        *,
        at: str = "s1",
        pid: int = 0,
        state: RegionState = RegionState.OPEN,
        table: Table = table,
        to: str = "s2",
        claimed: bool = False,
        pinned: bool = False,
        rests: bool = False,
        fails: bool = False,
    ) -> Skip | None:
        region = Region(1, table, b"", b"", state, servers.get(at), pid=pid)
        return skip_of(region, "s1", to, {"s2"}, claimed=claimed, pinned=pinned, rests=rests, fails=fails)

    disabled = Table("u", TableKind.USER, TableState.DISABLED, {}, [])
    found = [
        judged(),
        skip_of(None, "s1", "s2", {"s2"}, claimed=False, pinned=False, rests=False, fails=False),
        judged(state=RegionState.FAILED_OPEN),
        judged(at="s3"),
        judged(pid=7),
        judged(claimed=True),
        judged(pinned=True),
        judged(rests=True),
        judged(to="s3"),
        judged(fails=True),
    ]
    assert found == [None, *Skip]
    assert judged(table=disabled) is Skip.CLOSED
    assert judged(at="") is Skip.ELSEWHERE
    assert SKIPPED.keys() == set(Skip)


def test_a_plan_is_due_where_a_server_or_one_table_at_it_misses_its_share_by_more_than_the_slop() -> None:
    even = a_cluster([0] * 11 + [1] * 9, 2)
    assert Simple(slop=0.0).plan(even, 0).due
    assert not Simple(slop=0.2).plan(even, 0).due
    assert len(Simple(slop=0.2).plan(even, 0).moves) == 1, "a command balances all the same"
    tables = a_cluster([0] * 4 + [1] * 4, 2, tables=[0] * 4 + [1] * 4)
    assert not Simple(slop=0.2).plan(tables, 0).due
    assert Simple(by_table=True, slop=0.2).plan(tables, 0).due
