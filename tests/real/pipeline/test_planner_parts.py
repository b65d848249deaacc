"""Plans in parts: between them no broker is above a hard bound that it was not above before."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

np = pytest.importorskip("numpy", reason="NumPy is not installed")
pytest.importorskip("numba", reason="Numba is not installed")

from dataclasses import replace  # noqa: E402

from pipeline.planner.broker_file import GivenBroker  # noqa: E402
from pipeline.planner.certifying import certified, worse_between  # noqa: E402
from pipeline.planner.goals import Goal  # noqa: E402
from pipeline.planner.parting import in_parts  # noqa: E402
from pipeline.planner.planning import Planned, chosen  # noqa: E402
from pipeline.planner.problem import with_means  # noqa: E402
from tests.real.pipeline.planner_kit import Replicas, cluster, plan  # noqa: E402

pytestmark = pytest.mark.timeout(600)

DISKS = {broker: GivenBroker(disk_bytes=1_000) for broker in (1, 2, 3, 4)}
RACKS = {1: "a", 2: "b", 3: "c", 4: "d"}


def to(target: Sequence[Replicas], start: Sequence[Replicas], size: float, order: list[int]) -> Planned:
    """Makes a plan by hand, whose moves have an order; each disk may have 800 bytes."""
    problem, assumed = with_means(cluster(RACKS, {"t": start}, size=size, given=DISKS))
    best = plan(problem, 1).best
    replicas = np.array(target, np.int32) - 1
    placed = np.zeros(len(start), np.int64)
    placed[order] = np.arange(len(order))
    tried = replace(best, replicas=replicas, order=placed, certificate=certified(problem, replicas))
    return chosen(problem, assumed, certified(problem, problem.replicas), (tried,))


def test_a_move_waits_for_the_part_that_makes_room_for_it() -> None:
    """Broker 2 is full; the search moved 0 to it first, and then 1 and 2 away from it."""
    start = [(1,), (2,), (2,), (2,), (2,)]
    found = to([(2,), (3,), (4,), (2,), (2,)], start, 200, [0, 1, 2])
    even = list(worse_between(found.problem, found.best.replicas, [found.rows[:1], found.rows[1:]]))
    assert [(one.part, one.goal, one.at) for one in even] == [(1, Goal.DISK_MAX, (1,))]
    cut = in_parts(found, 3, 10)
    assert (cut.found.rows.tolist(), cut.ends, cut.worse) == ([1, 2, 0], (1, 2, 3), ())


def test_no_part_ends_within_a_ring_of_moves_that_wait_for_each_other() -> None:
    """Brokers 1, 2 and 3 are full, and each gives one to the next."""
    start = [(1,), (2,), (3,), (1,), (2,), (3,), (4,)]
    found = to([(2,), (3,), (1,), (1,), (2,), (3,), (1,)], start, 400, [0, 6, 1, 2])
    assert found.best.certificate.of(Goal.DISK_MAX).broken == 1, "broker 1 gets one more than it may have"
    found = to([(2,), (3,), (1,), (1,), (2,), (3,), (4,)], start, 400, [0, 1, 2])
    cut = in_parts(found, 2, 10)
    assert (sorted(cut.found.rows.tolist()), cut.ends, cut.worse) == ([0, 1, 2], (3,), ())
    forced = in_parts(found, 2, 2)
    assert forced.ends == (2, 3)
    assert [one.goal for one in forced.worse] == [Goal.DISK_MAX], "a ring of three does not fit in parts of two"


def test_a_plan_in_one_part_keeps_the_order_of_the_search() -> None:
    found = to([(2,), (3,), (4,), (2,), (2,)], [(1,), (2,), (2,), (2,), (2,)], 200, [0, 1, 2])
    cut = in_parts(found, 1, 10)
    assert (cut.found.rows.tolist(), cut.ends) == ([0, 1, 2], (3,))


def test_more_parts_than_moves_are_as_many_as_moves() -> None:
    found = to([(2,), (3,), (4,), (2,), (2,)], [(1,), (2,), (2,), (2,), (2,)], 100, [0, 1, 2])
    assert in_parts(found, 50, 10).ends == (1, 2, 3)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=16), st.integers(1, 6))
def test_each_move_is_in_one_part_and_a_cut_is_worse_only_where_it_says_so(
    pairs: list[tuple[int, int]], count: int
) -> None:
    start, target = ([(pair[side],) for pair in pairs] for side in (0, 1))
    changed = [row for row, (one, other) in enumerate(pairs) if one != other]
    found = to(target, start, 200, changed)
    cut = in_parts(found, count, 4)
    assert sorted(cut.found.rows.tolist()) == changed
    assert all(end - begin <= 4 for begin, end in zip((0, *cut.ends), cut.ends, strict=False))
    said = {one.part for one in cut.worse}
    loads = [sum(one == broker for one, _ in pairs) * 200 for broker in range(1, 5)]
    allowed = [max(800, load) for load in loads]
    begin = 0
    for number, end in enumerate(cut.ends, 1):
        for row in cut.found.rows[begin:end].tolist():
            loads[pairs[row][0] - 1] -= 200
            loads[pairs[row][1] - 1] += 200
        begin = end
        if number < len(cut.ends):
            assert (number in said) == any(load > most for load, most in zip(loads, allowed, strict=True))
