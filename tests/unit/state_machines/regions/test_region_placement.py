"""Servers get regions by their weights, and by table where balances spread tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state_machines.regions.entities import Region, Server, Table
from state_machines.regions.marks import Mark, MarkKind, Marks, is_weight
from state_machines.regions.placement import Wish, placement_of
from state_machines.regions.states import RegionState, TableKind, TableState
from tests.unit.state_machines.regions.test_region_decisions import servers_with, wishes


def names(plan: list[Server]) -> list[str]:
    return [one.name for one in plan]


def test_a_weight_belongs_to_the_name_of_a_server_until_it_is_removed() -> None:
    marks = Marks()
    assert marks.weight("a") == 1.0
    marks.put(Mark(MarkKind.WEIGHT, "a", "2.5"))
    marks.put(Mark(MarkKind.CORDON, "b"))
    assert (marks.weight("a"), marks.weight("b"), marks.weights) == (2.5, 1.0, {"a": 2.5})
    marks.drop(MarkKind.CORDON, "a")
    assert marks.weight("a") == 2.5
    marks.drop(MarkKind.WEIGHT, "a")
    assert marks.weights == {}


@given(st.lists(st.integers(1, 8), min_size=1, max_size=5), st.integers(0, 60))
def test_a_server_gets_its_share_by_weight(weights: list[int], wanted: int) -> None:
    servers = servers_with(*[0] * len(weights))
    shares = {one.name: float(weight) for one, weight in zip(servers, weights, strict=True)}
    plan = names(placement_of("round_robin").place(wishes(wanted), servers, lambda _: 0, shares))
    for name, weight in shares.items():
        assert abs(plan.count(name) - wanted * weight / sum(weights)) <= max(len(weights), 2)


@pytest.mark.seed("S1-92")
@pytest.mark.parametrize("name", ["round_robin", "retain"])
def test_by_table_the_regions_of_each_table_are_dealt_to_all_servers(name: str) -> None:
    """A crash of a server with regions of many tables leaves each table even, as a balance by table does."""
    servers = servers_with(4, 0, 0)
    tables = [Table(one, TableKind.USER, TableState.ENABLED, {}, []) for one in ("t", "u")]
    mixed = [Wish(Region(n, tables[n % 3 == 2], b"", b"", RegionState.OFFLINE)) for n in range(12)]
    of: dict[str, list[str]] = {one.name: [] for one in tables}
    plan_ = placement_of(name, by_table=True).place(mixed, servers, lambda _: 0, {})
    for wish, server in zip(mixed, plan_, strict=True):
        of[wish.region.table.name].append(server.name)
    spread = {name: sorted(plan.count(one) for one in ("s0", "s1", "s2")) for name, plan in of.items()}
    assert spread == {"t": [2, 3, 3], "u": [1, 1, 2]}
    [last] = placement_of(name, by_table=True).place(mixed[:1], servers, lambda _: 0, {})
    assert last.name == "s1", "of equal servers the one with fewer regions in all"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", True), ("0.1", True), ("1000", True), ("0.05", False), ("1001", False), ("", False), ("-1", False),
     ("nan", False), ("inf", False), ("1e2", False), ("0x1", False), ("٣", False)],
)  # fmt: skip
def test_the_text_of_a_weight_is_a_plain_number_in_its_range(text: str, expected: bool) -> None:
    assert is_weight(text) is expected
