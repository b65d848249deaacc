"""The time of a plan at a rate: the busiest broker and direction decide."""

from __future__ import annotations

import pytest

from state_machines.decisions.plan_progress import PlannedMove
from state_machines.planning.expected_time import Expected, expected

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
