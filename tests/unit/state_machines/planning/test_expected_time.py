"""The time of a plan at a rate: the busiest broker and direction decide."""

from __future__ import annotations

import pytest

from state_machines.decisions.plan_progress import PlannedMove
from state_machines.planning.expected_time import Expected, Received, expected, received

Replicas = tuple[int, ...]


@pytest.mark.parametrize(
    ("moves", "found"),
    [
        ([], None),
        ([((1, 2), (2, 1), 0)], None),
        ([((1, 2), (1, 3), 0)], None),
        ([((1, 2), (1, 3), 100)], Expected(10, 1, "sends", 100)),
        ([((1, 2), (3, 4), 100)], Expected(10, 1, "sends", 100)),
        ([((1, 2), (3, 2), 100), ((2, 1), (3, 1), 101)], Expected(21, 3, "receives", 201)),
        ([((), (3,), 30)], Expected(3, 3, "receives", 30)),
    ],
)
def test_the_busiest_broker_and_direction_decide(
    moves: list[tuple[Replicas, Replicas, int]], found: Expected | None
) -> None:
    assert expected([PlannedMove("t", 0, *move) for move in moves], 10) == found


@pytest.mark.parametrize(
    ("most", "found"),
    [(1, Received(3, 70)), (2, Received(3, 120)), (3, Received(3, 130)), (9, Received(3, 130))],
)
def test_the_broker_that_copies_most_traffic_counts_its_busiest_moves(most: int, found: Received) -> None:
    moves = [PlannedMove("t", number, (1, 2), (3, 2) if number < 3 else (1, 4)) for number in range(5)]
    traffic = {("t", 0): 50.0, ("t", 1): 9.6, ("t", 2): 70.0, ("t", 3): 60.0}
    assert received(moves, traffic, most) == found


def test_moves_without_traffic_or_without_a_further_replica_receive_nothing() -> None:
    moves = [PlannedMove("t", 0, (1, 2), (2, 1)), PlannedMove("t", 1, (1,), (2,))]
    assert received(moves, {("t", 0): 50.0}, 10) is None
    assert received([], {}, 10) is None
