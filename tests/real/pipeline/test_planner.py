"""The planner of replicas: expected moves of small clusters, hard goals of any cluster, and an independent count."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

np = pytest.importorskip("numpy", reason="NumPy is not installed")
pytest.importorskip("numba", reason="Numba is not installed")

from benchmarks.planner_speed import SIZES  # noqa: E402
from benchmarks.planner_speed import cluster as skewed_cluster  # noqa: E402
from pipeline.planner.broker_file import GivenBroker  # noqa: E402
from pipeline.planner.certifying import certified  # noqa: E402
from pipeline.planner.goals import Goal  # noqa: E402
from pipeline.planner.planning import SEEDS_MAX, planned  # noqa: E402
from pipeline.planner.problem import PlanLimits, Problem, with_means  # noqa: E402
from pipeline.planner.unmet import unmet  # noqa: E402
from tests.real.pipeline.planner_kit import after, cluster, moved, naive, plan  # noqa: E402

pytestmark = pytest.mark.timeout(600)  # the first test compiles the search

THREE = {1: "a", 2: "b", 3: "c"}
FOUR = {1: "a", 2: "b", 3: "c", 4: "d"}
EVEN = [(1, 2), (2, 3), (3, 4), (4, 1)] * 5


def test_a_cluster_within_its_bounds_stays_as_it_is() -> None:
    found = plan(cluster(FOUR, {"t": EVEN}))
    assert (moved(found), found.best.bytes_moved, found.bytes_min) == ({}, 0, 0)
    assert found.best.certificate.hard_broken == found.best.certificate.soft_broken == 0


def test_all_replicas_leave_a_broker_that_retires_and_no_others_move() -> None:
    problem = cluster(FOUR, {"t": EVEN}, retire=[4], limits=PlanLimits(spread=0.5))
    found = plan(problem)
    assert all(4 not in replicas for replicas in after(found).values())
    assert len(found.rows) == 10
    assert {found.reason(row) for row in found.rows} <= {Goal.ALIVE, Goal.TOPICS}
    assert found.best.bytes_moved == found.bytes_min == 10 * 100


def test_replicas_of_a_dead_broker_go_to_live_ones() -> None:
    found = plan(cluster(FOUR, {"t": EVEN}, dead=[1]))
    assert found.before.of(Goal.ALIVE).broken == 10
    assert found.best.certificate.of(Goal.ALIVE).broken == 0


def test_replicas_of_one_rack_are_spread() -> None:
    found = plan(cluster({1: "a", 2: "a", 3: "b", 4: "b"}, {"t": [(1, 2), (3, 4)]}))
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    for replicas in after(found).values():
        assert {racks[b] for b in replicas} == {"a", "b"}
    assert {found.reason(row) for row in found.rows} == {Goal.RACKS}


def test_no_balance_is_worth_a_shared_rack() -> None:
    """Broker 3 is alone on its rack: it has to keep a replica of each partition, far above its share."""
    found = plan(cluster({1: "a", 2: "a", 3: "b"}, {f"t{i}": [(1, 3)] for i in range(20)}))
    assert found.best.certificate.of(Goal.RACKS).broken == 0
    assert all(3 in replicas for replicas in after(found).values())
    assert sum(2 in replicas for replicas in after(found).values()) >= 7


def test_more_replicas_than_racks_are_spread_evenly() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "a", 4: "b", 5: "b", 6: "b"}
    found = plan(cluster(racks, {"t": [(1, 2, 3, 4)]}))
    assert found.before.of(Goal.RACKS).broken == 1
    (replicas,) = after(found).values()
    assert sorted(racks[b] or "" for b in replicas) == ["a", "a", "b", "b"]


def test_a_new_broker_gets_its_share_and_few_bytes_move() -> None:
    placed = [((i % 4) + 1, ((i + 1) % 4) + 1) for i in range(100)]
    found = plan(cluster({**FOUR, 5: "e"}, {f"t{i}": [p] for i, p in enumerate(placed)}))
    counts = naive(found.problem, found.best.replicas)["count"]
    assert 36 <= counts[4] <= 44
    assert found.best.certificate.soft_broken == 0
    assert found.best.bytes_moved <= 1.15 * max(found.bytes_min, 36 * 100)


def test_uneven_leaders_change_by_the_order_alone() -> None:
    placed = [(1, 2), (1, 3), (2, 3)] * 10
    found = plan(cluster(THREE, {"t": [(min(p), max(p)) for p in placed]}))
    assert found.before.of(Goal.LEADERS).broken == 2
    assert found.best.certificate.of(Goal.LEADERS).broken == 0
    assert found.best.bytes_moved == 0
    assert found.rows.size


def test_a_topic_that_crowds_one_broker_is_spread() -> None:
    wide = {"crowd": [(1,)] * 12, **{f"t{i}": [((i % 3) + 2,)] * 4 for i in range(9)}}
    found = plan(cluster(FOUR, wide))
    assert found.before.of(Goal.TOPICS).broken > 0
    assert found.best.certificate.of(Goal.TOPICS).broken == 0


def test_the_smallest_replicas_of_a_crowded_topic_are_the_fewest_bytes() -> None:
    """Twelve of a mean of three are on broker 1, and nine are allowed: three have to leave, of 10, 20 and 30 bytes."""
    topics = {"crowd": [(1,)] * 12, "rest": [(2,)] * 12 + [(3,)] * 12 + [(4,)] * 12}
    sizes = {("crowd", number): 10.0 + 10.0 * number for number in range(12)}
    found = plan(cluster(FOUR, topics, sizes=sizes, limits=PlanLimits(spread=0.9)))
    assert found.before.of(Goal.TOPICS).broken == 3
    assert found.best.bytes_moved == found.bytes_min == 10 + 20 + 30


def test_loads_that_leave_a_broker_keep_their_proportion_so_that_hardly_a_byte_moves_twice() -> None:
    """Brokers have a tenth to three times the mean of counts, bytes and bytes in, which are all to be even."""
    found = planned(skewed_cluster(SIZES[0], "skewed"), 1)
    assert found.before.soft_broken > 60
    assert found.best.certificate.hard_broken == found.best.certificate.soft_broken == 0
    assert found.best.bytes_moved < 1.02 * found.bytes_min


def test_a_full_cluster_is_evened_by_swaps() -> None:
    """Each broker has as many replicas as it may have, so that only swaps make the bytes even."""
    topics = {f"t{i}": [((i % 2) + 1,)] for i in range(20)}
    sizes = {(f"t{i}", 0): 1000.0 if i % 2 else 100.0 for i in range(20)}
    problem = cluster({1: "a", 2: "b"}, topics, sizes=sizes, limits=PlanLimits(replicas_max=10))
    found = plan(problem)
    assert found.before.of(Goal.DISK).broken == 2
    assert found.best.certificate.of(Goal.DISK).broken == 0
    assert found.best.certificate.hard_broken == 0


def test_the_same_seeds_give_the_same_plan_and_more_seeds_no_worse_one() -> None:
    topics = {f"t{i}": [((i * 7) % 3 + 1, (i * 7 + 1) % 3 + 1)] * (1 + i % 5) for i in range(40)}
    problem = cluster({**THREE, 4: "d", 5: "e"}, topics)
    first, again, more = planned(problem, 2, threads=1), planned(problem, 2, threads=2), planned(problem, 4)
    assert (first.best.replicas == again.best.replicas).all()
    assert more.best.rank <= first.best.rank


@pytest.mark.parametrize("seeds", [0, SEEDS_MAX + 1])
def test_a_number_of_seeds_out_of_bounds_is_refused(seeds: int) -> None:
    with pytest.raises(ValueError, match=f"seeds = {seeds}: give 1 to {SEEDS_MAX}"):
        planned(cluster(THREE, {}), seeds)


def test_a_cluster_without_partitions_has_nothing_to_move() -> None:
    assert not plan(cluster(THREE, {})).rows.size


def test_unknown_loads_count_as_the_mean_of_the_known_ones() -> None:
    problem = cluster(FOUR, {"t": EVEN})
    size = problem.size.copy()
    size[::10], size[1] = np.nan, 290.0
    found = plan(Problem(**{**vars(problem), "size": size, "bytes_out": np.full(len(size), np.nan)}))
    (sizes, outs) = found.assumed
    assert (sizes.kind, sizes.partitions, round(sizes.mean)) == ("size", 2, round((17 * 100 + 290) / 18))
    assert (outs.kind, outs.partitions, outs.mean) == ("bytes_out", len(size), 0.0)
    assert found.best.certificate.of(Goal.OUT).broken == 0


IMPOSSIBLE: list[tuple[str, dict[str, Any], str, str]] = [
    ("too few brokers", {"retire": [3, 4]}, "no replica on dead", "2 brokers may take any"),
    ("excluded topic", {"retire": [4], "exclude_topics": ["t"]}, "no replica on dead", "its topic is excluded"),
    ("small disks", {"given": {b: GivenBroker(disk_bytes=900) for b in FOUR}}, "disk below", "208 % of what they may"),
    ("replicas", {"limits": PlanLimits(replicas_max=10)}, "replicas per broker", "150 % of what they may"),
]


@pytest.mark.parametrize(("options", "goal", "why"), [case[1:] for case in IMPOSSIBLE], ids=[c[0] for c in IMPOSSIBLE])
def test_a_hard_goal_that_cannot_be_reached_is_named_with_the_reason(
    options: dict[str, Any], goal: str, why: str
) -> None:
    three = [(1, 2, 3), (2, 3, 4), (3, 4, 1), (4, 1, 2)] * 5
    found = plan(cluster(FOUR, {"t": three}, **options))
    (missed,) = unmet(found)
    assert missed.goal.startswith(goal)
    assert why in missed.why
    assert missed.named
    assert missed.broken == sum(count.broken for count in found.best.certificate.counts if count.hard)


@st.composite
def clusters(draw: st.DrawFn) -> Problem:
    """Draws clusters of all sorts: racks or none, dead, retiring and excluded brokers, odd factors and sizes."""
    ids = list(range(1, draw(st.integers(3, 9)) + 1))
    racks = {b: draw(st.sampled_from(["a", "b", "c", None])) for b in ids}
    topics: dict[str, list[tuple[int, ...]]] = {}
    sizes: dict[tuple[str, int], float] = {}
    for at in range(draw(st.integers(1, 6))):
        factor = draw(st.integers(1, min(4, len(ids))))
        shuffled = draw(st.lists(st.permutations(ids), min_size=1, max_size=12))
        placed = [tuple(p[:factor]) for p in shuffled]
        topics[f"t{at}"] = placed
        sizes |= {(f"t{at}", number): float(draw(st.integers(1, 1000))) for number in range(len(placed))}
    some = st.sets(st.sampled_from(ids), max_size=2)
    capacity = draw(st.sampled_from([None, 3_000.0, 20_000.0]))
    return cluster(
        racks,
        topics,
        sizes=sizes,
        dead=draw(some),
        retire=draw(some),
        exclude=draw(some),
        exclude_topics=draw(st.sampled_from([[], ["t0"]])),
        given={b: GivenBroker(disk_bytes=capacity) for b in ids} if capacity else {},
        limits=PlanLimits(replicas_max=draw(st.sampled_from([8, 100]))),
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters())
def test_hard_goals_hold_after_any_plan_or_could_not_and_the_count_agrees(problem: Problem) -> None:
    found = plan(problem, 1)
    before, best = found.before, found.best
    for replicas, certificate in ((problem.replicas, before), (best.replicas, best.certificate)):
        counted = naive(found.problem, replicas)
        assert certificate.of(Goal.ALIVE).broken == counted["gone"]
        assert certificate.of(Goal.REPLICAS_MAX).broken == counted["over"]
        assert certificate.of(Goal.DISK_MAX).broken == counted["full"]
        assert certificate.of(Goal.RACKS).broken == len(counted["crowded"])
    free = problem.stuck == 0
    assert (best.replicas[~free] == problem.replicas[~free]).all()
    assert not (set(found.problem.brokers.ids[_taken(found)]) - set(problem.brokers.ids[problem.brokers.hosts]))
    enough = int(problem.brokers.hosts.sum()) >= int(problem.factors.max())
    loose = problem.limits.replicas_max == 100 and not np.isfinite(problem.brokers.disk).any()
    if enough and loose and free.all():
        assert best.certificate.hard_broken == 0
    if best.certificate.hard_broken == best.certificate.soft_broken == 0:
        assert best.bytes_moved >= found.bytes_min * (1 - 1e-9)
    for was, now in zip(before.counts, best.certificate.counts, strict=True):
        if was.hard and loose:
            assert now.broken <= was.broken


def _taken(found: Any) -> Any:
    """Returns the brokers that get a replica."""
    before, now = found.problem.replicas, found.best.replicas
    new = (now[:, :, None] != before[:, None, :]).all(axis=2) & (now >= 0)
    return np.unique(now[new])


def test_the_certificate_finds_what_a_wrong_plan_breaks() -> None:
    problem, _ = with_means(cluster({1: "a", 2: "a", 3: "b"}, {"t": [(1, 3), (2, 3)]}, retire=[2]))
    wrong = np.array([[0, 1], [1, 2]], np.int32)
    counts = certified(problem, wrong)
    assert (counts.of(Goal.ALIVE).broken, counts.of(Goal.RACKS).broken) == (2, 1)
    with pytest.raises(ValueError, match="t-1 has two replicas on one broker"):
        certified(problem, np.array([[0, 2], [1, 1]], np.int32))
    with pytest.raises(ValueError, match="another number of replicas"):
        certified(problem, np.array([[0, -1], [1, 2]], np.int32))


def test_leaders_are_not_made_even_beyond_a_cap() -> None:
    small = {2: GivenBroker(bytes_out_per_s=125.0)}
    found = plan(cluster({1: "a", 2: "b"}, {"t": [(1, 2)] * 20}, given=small))
    assert found.best.certificate.hard_broken == 0
    assert len(found.rows) == 3, "80 % of 125 bytes a second are those of three leaders"
