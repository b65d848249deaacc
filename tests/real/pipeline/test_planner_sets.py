"""Sets of brokers: their topics are on them alone, evenly, and no others are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("numpy", reason="NumPy is not installed")
pytest.importorskip("numba", reason="Numba is not installed")

from pipeline.inputs import BadInput
from pipeline.planner.broker_file import GivenBroker
from pipeline.planner.broker_sets import BrokerSet, read_sets
from pipeline.planner.goals import Goal
from pipeline.planner.planning import Planned
from pipeline.planner.unmet import unmet
from tests.real.pipeline.planner_kit import after, cluster, moved, plan

pytestmark = pytest.mark.timeout(600)

SIX = {broker: "abc"[broker % 3] for broker in range(1, 7)}
PAYMENTS = BrokerSet("payments", ("pay-*",), (1, 2, 3))


def on(found: Planned, prefix: str) -> Counter[int]:
    """Counts the replicas of topics by broker."""
    return Counter(broker for name, replicas in after(found).items() if name.startswith(prefix) for broker in replicas)


def test_topics_go_to_the_brokers_of_their_set_and_the_others_leave_them() -> None:
    everywhere = [(1, 2), (3, 4), (5, 6), (2, 3), (4, 5), (6, 1)] * 2
    found = plan(cluster(SIX, {"pay-in": everywhere, "logs": everywhere}, sets=[PAYMENTS]))
    assert (on(found, "pay"), on(found, "logs")) == (Counter(dict.fromkeys((1, 2, 3), 8)), Counter({4: 8, 5: 8, 6: 8}))
    assert found.before.of(Goal.SETS).broken == 24
    assert found.best.certificate.hard_broken == found.best.certificate.soft_broken == 0
    assert Goal.SETS in {found.reason(row) for row in found.rows}


def test_each_set_is_even_by_itself() -> None:
    """Brokers of one set have ten times the load of the others; as a whole the cluster is far from even."""
    topics = {"pay-in": [(1, 2), (2, 3), (3, 1)] * 20, "logs": [(4, 5), (5, 6), (6, 4)] * 2}
    found = plan(cluster(SIX, topics, sets=[PAYMENTS]))
    assert (moved(found), found.bytes_min, found.best.certificate.soft_broken) == ({}, 0, 0)
    assert moved(plan(cluster(SIX, topics))), "without sets replicas move"


def test_a_set_with_too_few_brokers_is_named() -> None:
    found = plan(cluster(SIX, {"pay-in": [(1, 4)], "logs": [(4, 5)]}, sets=[BrokerSet("small", ("pay-*",), (1,))]))
    said = {one.goal: (one.named, one.why) for one in unmet(found)}
    why = "it has 2 replicas and 1 brokers of the set small may take any: add brokers, or lower the factor"
    assert said["replicas on the brokers of their set"] == (("pay-in-0",), why)


def test_what_may_not_move_is_a_load_of_the_set_in_which_it_is() -> None:
    """A partition that is excluded fills half of broker 1, so others of the set cannot be there, too."""
    disks = {broker: GivenBroker(disk_bytes=1_000) for broker in SIX}
    topics = {"pay-in": [(4,)] * 6, "stays": [(1,)]}
    sizes = {("stays", 0): 700.0}
    found = plan(cluster(SIX, topics, sizes=sizes, given=disks, sets=[PAYMENTS], exclude_topics=["stays"]))
    assert on(found, "pay")[1] <= 1
    assert found.best.certificate.of(Goal.DISK_MAX).broken == 0
    [one] = unmet(found)
    assert (one.goal, one.named) == ("replicas on the brokers of their set", ("stays-0",))
    assert "its topic is excluded" in one.why


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.permutations(range(1, 7)), min_size=1, max_size=30), st.integers(2, 4))
def test_no_replica_is_ever_left_on_a_broker_of_another_set(placed: list[list[int]], count: int) -> None:
    topics = {name: [tuple(one[:2]) for one in placed] for name in ("pay-in", "logs")}
    found = plan(cluster(SIX, topics, sets=[BrokerSet("p", ("pay-*",), tuple(range(1, count + 1)))]), 1)
    assert set(on(found, "pay")) <= set(range(1, count + 1))
    assert set(on(found, "logs")).isdisjoint(range(1, count + 1))
    assert found.best.certificate.of(Goal.SETS).broken == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[{"name": "a", "topics": ["x"]}]', "missing required field `brokers`"),
        ("[]", "has 0 sets of brokers: give 1 to 1000"),
        ('[{"name": "a", "topics": [], "brokers": [1]}, {"name": "a", "topics": [], "brokers": [2]}]', "'a' is there"),
        (
            '[{"name": "a", "topics": [], "brokers": [1]}, {"name": "b", "topics": [], "brokers": [1]}]',
            "broker 1 is in the sets a and b: keep it in one of them",
        ),
    ],
)
def test_a_wrong_file_of_sets_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "sets.json"
    file.write_text(text)
    with pytest.raises(BadInput, match=words):
        read_sets(file)


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ([BrokerSet("a", ("t",), (9,))], "set a: the cluster has no broker 9"),
        ([BrokerSet("a", ("t",), (1,)), BrokerSet("b", ("*",), (2,))], "topic t is in the sets a and b"),
        ([BrokerSet("a", ("x",), tuple(SIX))], "topic t is in no set, and each broker is in one"),
    ],
)
def test_sets_that_do_not_fit_the_cluster_are_refused(sets: list[BrokerSet], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        cluster(SIX, {"t": [(1, 2)]}, sets=sets)
