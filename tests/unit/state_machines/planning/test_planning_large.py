"""A plan of 5,000 moves in a cluster of 100 brokers and 100,000 partitions."""

from __future__ import annotations

from state_machines.planning.goals import Decommission
from state_machines.planning.plan_file import decode_plan, encode_plan
from state_machines.planning.planner import plan
from tests.kit.planning_kit import make_view, racks_of

BROKERS, TOPICS, PARTITIONS = 100, 1_000, 100


def test_5000_moves_on_100_brokers_with_100_000_partitions_are_even_keep_racks_and_fit_their_file() -> None:
    racks: dict[int, str | None] = {b: "abcde"[b % 5] for b in range(BROKERS)}
    topics = {
        f"t{n:04}": [tuple((n + p + shift) % BROKERS for shift in (0, 1, 2)) for p in range(PARTITIONS)]
        for n in range(TOPICS)
    }
    view = make_view(racks, topics, sizes={(name, p): p for name in topics for p in range(PARTITIONS)})
    found = plan(view, Decommission((7, 8, 9)))
    assert len(found.moves) == 5_000
    assert found.refused == ()
    assert all(len(racks_of(view, move.target)) == 3 for move in found.moves)
    loads = [load for load in found.summary.brokers if load.broker not in (7, 8, 9)]
    assert max(load.replicas_after for load in loads) - min(load.replicas_after for load in loads) <= 1
    assert max(load.first_after for load in loads) - min(load.first_after for load in loads) <= 0.2 * TOPICS
    assert decode_plan(encode_plan(found)).moves == found.moves
