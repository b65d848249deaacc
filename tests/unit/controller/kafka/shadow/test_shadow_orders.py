"""Yields the orders in which another controller may have handled the events that the shadow read."""

from __future__ import annotations

import pytest

from controller.kafka.shadow.events import ORDERS_MAX, PERMUTED_BROKERS_MAX, ClusterEvent, Kind, other_orders
from tests.kit.model import broker

Outline = list[tuple[Kind, tuple[int, ...], list[int]]]
"""Kind, subjects and registered brokers of each event."""


def event(number: int, kind: Kind, subjects: tuple[int, ...], *live: int) -> ClusterEvent:
    return ClusterEvent(number, 7, kind, subjects, {b: broker(b, 1) for b in live}, frozenset(), 0.0)


def orders(*events: ClusterEvent) -> list[Outline]:
    return [[(e.kind, e.subjects, sorted(e.brokers)) for e in order] for order in other_orders(events)]


D, R, C, F = Kind.DEATH, Kind.RETURN, Kind.CREATION, Kind.FAILOVER
ORDERS: dict[str, tuple[list[ClusterEvent], list[Outline]]] = {
    "one event": ([event(1, D, (1,), 2, 3)], []),
    "two deaths of one snapshot": (
        [event(1, D, (1, 2), 3)],
        [[(D, (1,), [2, 3]), (D, (2,), [3])], [(D, (2,), [1, 3]), (D, (1,), [3])]],
    ),
    "two returns of one snapshot": (
        [event(1, R, (1, 2), 1, 2, 3)],
        [[(R, (1,), [1, 3]), (R, (2,), [1, 2, 3])], [(R, (2,), [2, 3]), (R, (1,), [1, 2, 3])]],
    ),
    "two deaths after each other": (
        [event(1, D, (1,), 2, 3), event(2, D, (2,), 3)],
        [[(D, (1, 2), [3])], [(D, (2,), [1, 3]), (D, (1,), [3])]],
    ),
    "a death and a return": (
        [event(1, D, (1,), 3), event(2, R, (2,), 2, 3)],
        [[(R, (2,), [1, 2, 3]), (D, (1,), [2, 3])]],
    ),
    "a return and a death": (
        [event(1, R, (1,), 1, 2, 3), event(2, D, (2,), 1, 3)],
        [[(D, (2,), [3]), (R, (1,), [1, 3])]],
    ),
    "a return that a death undoes": ([event(1, R, (1,), 1, 2), event(2, D, (1,), 2)], [[]]),
    "a death before a failover": (
        [event(1, D, (1,), 2, 3), event(2, F, (), 2, 3)],
        [[(F, (), [2, 3])]],
    ),
    "a failover that reads the dead broker": (
        [event(1, F, (1,), 2, 3)],
        [[(F, (), [1, 2, 3]), (D, (1,), [2, 3])]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ORDERS)
def test_events_split_join_and_swap_with_the_registrations_of_each_moment(case: str) -> None:
    events, nearest = ORDERS[case]
    assert orders(*events)[: len(nearest)] == nearest


@pytest.mark.parametrize(("count", "split"), [(PERMUTED_BROKERS_MAX, True), (PERMUTED_BROKERS_MAX + 1, False)])
def test_a_large_snapshot_is_not_split(count: int, split: bool) -> None:
    assert bool(orders(event(1, Kind.DEATH, tuple(range(count)), 9))) is split


def test_orders_are_distinct_and_bounded() -> None:
    events = [event(number, Kind.DEATH, (number,), *range(number + 1, 9)) for number in range(1, 8)]
    found = [[(e.number, e.subjects, sorted(e.brokers)) for e in order] for order in other_orders(events)]
    assert len(found) == ORDERS_MAX
    assert all(found.count(order) == 1 for order in found)
