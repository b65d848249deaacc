"""Replica placement against Kafka's own (``AdminUtils`` of 3.9.1, see placements.txt), with and without racks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state_machines.admin_rules.placement import PlacementError, alternated, place

TABLE = Path(__file__).with_name("placements.txt")


class Case(NamedTuple):
    """One line of the table."""

    brokers: dict[int, str | None]
    factor: int
    start: int
    shift: int
    first: int
    replicas: list[tuple[int, ...]]


def cases() -> list[tuple[str, Case]]:
    """Reads the table; the first two columns of a line are its name."""
    found = []
    for line in TABLE.read_text().splitlines():
        if line.startswith("#"):
            continue
        described, numbers, placed = (part.strip() for part in line.split("|"))
        pairs = [entry.partition(":") for entry in described.split(",")]
        brokers = {int(broker): rack or None for broker, _, rack in pairs}
        replicas = [tuple(map(int, replica.split(","))) for replica in placed.split()]
        factor, start, shift, first = map(int, numbers.split())
        found.append((f"{described} {numbers}", Case(brokers, factor, start, shift, first, replicas)))
    return found


CASES = cases()


@pytest.mark.kafka(
    "AddPartitionsTest.testReplicaPlacementAllServers", "AddPartitionsTest.testReplicaPlacementPartialServers"
)
@pytest.mark.parametrize("case", [case for _, case in CASES], ids=[name for name, _ in CASES])
def test_a_placement_is_that_of_kafka(case: Case) -> None:
    placed = place(
        case.brokers,
        len(case.replicas),
        case.factor,
        start=case.start,
        shift=case.shift,
        first_partition=case.first,
    )
    assert list(placed) == list(range(case.first, case.first + len(case.replicas)))
    assert list(placed.values()) == case.replicas


def test_the_table_has_racks_or_none_one_broker_added_partitions_and_wrapped_shifts() -> None:
    known = [case for _, case in CASES]
    racked = [case for case in known if None not in case.brokers.values()]
    assert len(known) >= 100
    assert any(case.factor < len(set(case.brokers.values())) for case in racked)
    assert any(case.factor > len(set(case.brokers.values())) > 1 for case in racked)
    assert any(len(set(Counter(case.brokers.values()).values())) > 1 for case in racked)
    assert any(len(case.brokers) == 1 for case in known)
    assert sum(case.first > 0 for case in known) >= 20
    assert any(case.first > len(case.brokers) for case in known)
    assert any(len(case.replicas) > 2 * len(case.brokers) for case in known)
    assert any(case.start != case.shift for case in racked)


def test_alternated_brokers_are_one_of_each_rack_in_turn() -> None:
    assert alternated({0: "1", 1: "3", 2: "3", 3: "2", 4: "2", 5: "1"}) == [0, 3, 1, 5, 4, 2]
    assert alternated({0: "a", 1: "a", 2: "a", 3: "b", 4: "c", 5: "c"}) == [0, 3, 4, 1, 5, 2]


@given(
    racks=st.lists(st.sampled_from("abc"), min_size=1, max_size=9) | st.integers(1, 9).map(lambda n: [None] * n),
    partitions=st.integers(1, 40),
    start=st.integers(0, 20),
    shift=st.integers(0, 20),
    data=st.data(),
)
def test_a_placement_spreads_replicas_over_racks_and_leaders_over_brokers(
    racks: list[str | None], partitions: int, start: int, shift: int, data: st.DataObject
) -> None:
    brokers = dict(enumerate(racks, start=10))
    factor = data.draw(st.integers(1, len(brokers)))
    placed = place(brokers, partitions, factor, start=start, shift=shift)
    for replicas in placed.values():
        assert len(set(replicas)) == factor
        if None not in racks:
            assert len({brokers[b] for b in replicas}) == min(factor, len(set(racks)))
    leads = Counter(replicas[0] for replicas in placed.values())
    assert max(leads.values()) - min(leads.get(b, 0) for b in brokers) <= 1


@pytest.mark.parametrize(
    ("brokers", "partitions", "factor", "text"),
    [
        ({1: None, 2: None}, 0, 1, "partitions = 0: give 1 or more"),
        ({1: None, 2: None}, 1, 0, "replication_factor = 0: give 1 to 2, the number of live brokers"),
        ({1: None, 2: None}, 1, 3, "replication_factor = 3: give 1 to 2, the number of live brokers"),
        ({}, 1, 1, "replication_factor = 1: no broker is live, start one"),
        (
            {1: "a", 2: None, 3: None},
            1,
            1,
            "brokers [2, 3] have no rack while others have: set broker.rack on all brokers or on none",
        ),
    ],
)
def test_an_impossible_placement_has_its_remedy(
    brokers: dict[int, str | None], partitions: int, factor: int, text: str
) -> None:
    with pytest.raises(PlacementError) as refused:
        place(brokers, partitions, factor, start=0, shift=0)
    assert str(refused.value) == text
