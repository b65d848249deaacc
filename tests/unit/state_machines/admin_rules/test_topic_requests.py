"""CreateTopics and CreatePartitions as they are judged: every error, and which one wins where several apply."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state_machines.admin_rules.create_partitions import WantedGrowth, judge_growth
from state_machines.admin_rules.create_topics import (
    PARTITIONS_MAX,
    NewTopic,
    TopicContext,
    TopicDefaults,
    TopicError,
    TopicRefusal,
    WantedTopic,
    judge_topic,
)
from state_machines.admin_rules.placement import place
from state_machines.admin_rules.topic_configs import TOPIC_CONFIGS, TakenNames, unparsable, wrong_config, wrong_name
from state_machines.model.types import Assignment, TopicAssignment

DAEMON = 1_000_001
BROKERS: dict[int, str | None] = {1: None, 2: None, 3: None}
E = TopicError


def context(**changes: Any) -> TopicContext:
    fields: dict[str, Any] = {
        "brokers": BROKERS,
        "daemons": {DAEMON},
        "existing": {"there", "a.b"},
        "taken": TakenNames(["there", "a.b"]),
        "defaults": TopicDefaults(4, 2),
        "found": {"new-there"},
        "marked": {"going"},
    }
    return TopicContext(**(fields | changes))


def judged(wanted: WantedTopic, **changes: Any) -> NewTopic | TopicRefusal:
    return judge_topic(context(**changes), wanted, 1, 2)


def error(wanted: WantedTopic, **changes: Any) -> TopicError | None:
    found = judged(wanted, **changes)
    assert isinstance(found, NewTopic) or found.why
    return None if isinstance(found, NewTopic) else found.error


def replicas(found: NewTopic | TopicRefusal) -> dict[int, tuple[int, ...]]:
    assert isinstance(found, NewTopic), found
    return {p: a.replicas for p, a in found.partitions.items()}


# -- topics


def test_numbers_are_taken_or_the_clusters_defaults() -> None:
    assert replicas(judged(WantedTopic("t", 5, 3))) == place(BROKERS, 5, 3, start=1, shift=2)
    assert replicas(judged(WantedTopic("t"))) == place(BROKERS, 4, 2, start=1, shift=2)
    assert replicas(judged(WantedTopic("t", 1, -1))) == place(BROKERS, 1, 2, start=1, shift=2)


def test_given_assignments_are_taken_as_they_are_unknown_brokers_too() -> None:
    wanted = WantedTopic("t", assignments=((1, (9, 2)), (0, (3, 1))))
    assert replicas(judged(wanted)) == {0: (3, 1), 1: (9, 2)}


def test_racks_are_spread_and_a_mix_with_none_is_an_error_of_the_cluster() -> None:
    racked: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}
    found = replicas(judged(WantedTopic("t", 8, 2), brokers=racked))
    assert all({racked[b] for b in r} == {"a", "b"} for r in found.values())
    assert error(WantedTopic("t", 1, 1), brokers=racked | {5: None}) is E.UNKNOWN_SERVER_ERROR


WRONG: list[tuple[TopicError, dict[str, Any]]] = [
    (E.TOPIC_ALREADY_EXISTS, {"name": "there"}),
    (E.INVALID_CONFIG, {"configs": (("retention.ms", None),)}),
    (E.INVALID_REQUEST, {"partitions": 1, "assignments": ((0, (1,)),)}),
    (E.INVALID_PARTITIONS, {"partitions": 0}),
    (E.INVALID_REPLICATION_FACTOR, {"replication_factor": 4}),
    (E.POLICY_VIOLATION, {"partitions": PARTITIONS_MAX + 1}),
    (E.INVALID_TOPIC, {"name": "no/slash"}),
    (E.INVALID_REPLICA_ASSIGNMENT, {"assignments": ((0, (1, 2)), (1, (1,)))}),
    (E.INVALID_CONFIG, {"configs": (("retention.ms", "soon"),)}),
]
"""In Kafka's order."""


@pytest.mark.parametrize(("code", "fields"), WRONG)
def test_each_error_alone(code: TopicError, fields: dict[str, Any]) -> None:
    assert error(WantedTopic(**({"name": "t"} | fields))) is code


def together(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any] | None:
    """Both in one topic; None where they would be something else together."""
    both = first | second
    mixed = "assignments" in both and len(both.keys() & {"partitions", "replication_factor"}) > 0
    itself = any(wrong.keys() == {"partitions", "assignments"} for wrong in (first, second))
    return None if first.keys() & second.keys() or (mixed and not itself) else {"name": "t"} | both


PAIRS = [(a[0], both) for a, b in combinations(WRONG, 2) if (both := together(a[1], b[1])) is not None]


@pytest.mark.parametrize(("code", "fields"), PAIRS)
def test_of_two_errors_the_one_that_kafka_looks_for_first_wins(code: TopicError, fields: dict[str, Any]) -> None:
    assert error(WantedTopic(**fields)) is code


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "no/slash", "no space", "ü", "a\n"])
def test_names_that_no_topic_may_have(name: str) -> None:
    assert wrong_name(name)
    assert error(WantedTopic(name, 1, 1)) is E.INVALID_TOPIC


@pytest.mark.parametrize("name", ["x" * 249, "A-b_c.9", "...", "_", "-"])
def test_names_that_a_topic_may_have(name: str) -> None:
    assert wrong_name(name) is None


def test_names_collide_where_metrics_would() -> None:
    assert error(WantedTopic("a_b", 1, 1)) is E.INVALID_TOPIC
    assert error(WantedTopic("a-b", 1, 1)) is None
    taken = TakenNames([])
    taken.add("x.y")
    assert taken.colliding("x_y") == "x.y"


def test_what_zookeeper_has_is_there_though_the_model_does_not_know_it_yet() -> None:
    assert error(WantedTopic("new-there", 1, 1)) is E.TOPIC_ALREADY_EXISTS
    assert error(WantedTopic("going", 1, 1)) is E.TOPIC_ALREADY_EXISTS
    assert error(WantedTopic("__cluster_metadata", 1, 1)) is E.INVALID_REQUEST


@pytest.mark.kafka("AddPartitionsTest.testMissingPartitionsInCreateTopics")
@pytest.mark.parametrize(
    "assignments",
    [
        ((0, (1, 2)), (1, (1,))),
        ((0, (1, 1)),),
        ((1, (1,)),),
        ((0, (1,)), (2, (1,))),
        ((-1, (1,)), (0, (1,))),
        ((0, ()),),
        ((0, (-1,)),),
        ((0, (DAEMON,)),),
    ],
)
def test_assignments_that_cannot_be(assignments: Any) -> None:
    assert error(WantedTopic("t", assignments=assignments)) is E.INVALID_REPLICA_ASSIGNMENT


def test_a_request_creates_so_many_partitions_together() -> None:
    here = context()
    assert isinstance(judge_topic(here, WantedTopic("t", PARTITIONS_MAX - 1, 1), 0, 0), NewTopic)
    found = judge_topic(here, WantedTopic("u", 2, 1), 0, 0)
    assert isinstance(found, TopicRefusal)
    assert found.error is E.POLICY_VIOLATION
    assert isinstance(judge_topic(here, WantedTopic("u", 1, 1), 0, 0), NewTopic)


def test_no_broker_no_topic() -> None:
    assert error(WantedTopic("t", 1, 1), brokers={}) is E.INVALID_REPLICATION_FACTOR


@given(st.builds(WantedTopic, name=st.text(max_size=8), partitions=st.integers(-2, 9), configs=st.just(())))
def test_every_requested_topic_has_an_outcome(wanted: WantedTopic) -> None:
    found = judged(wanted)
    assert isinstance(found, TopicRefusal) or sorted(found.partitions) == list(range(len(found.partitions)))


# -- configurations

RIGHT = {
    "cleanup.policy": ["compact", "compact,delete", " delete , compact ", ""],
    "compression.gzip.level": ["-1", "9"],
    "compression.type": ["zstd", "producer"],
    "min.cleanable.dirty.ratio": ["0", "0.5", "1.0", "5e-1"],
    "leader.replication.throttled.replicas": ["*", "0:1,1:2", ""],
    "message.format.version": ["3.0-IV1", "2.8", "0.10.2", "0.8.2", "0.10.2-IV0", "3.9.1", "3.9-IV0"],
    "preallocate": ["true", "FALSE", " true "],
    "remote.log.copy.disable": ["false"],
    "retention.bytes": ["-1", "+5", " 7 "],
    "segment.bytes": ["14"],
}
FALSE = {
    "cleanup.policy": ["compacted", "compact;delete"],
    "compression.gzip.level": ["0", "10"],
    "compression.type": ["zip", ""],
    "min.cleanable.dirty.ratio": ["1.1", "-0.1", "nan", "half"],
    "leader.replication.throttled.replicas": ["0:1,x", "*,*"],
    "message.format.version": ["3", "x", "9.9", "1.5", "3.0-IV2", "0.8.2-IV0", "3.0-IV"],
    "min.insync.replicas": ["0", "1.0", "2147483648", ""],
    "preallocate": ["yes", "1"],
    "remote.log.copy.disable": ["true"],
    "retention.bytes": ["9223372036854775808", "9" * 5_000],
    "retention.ms": ["-2"],
    "segment.bytes": ["13"],
    "unclean.leader.election.enable": ["invalid"],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in RIGHT.items() for v in values])
def test_values_that_a_configuration_may_have(name: str, value: str) -> None:
    assert wrong_config({name: value}) is None


@pytest.mark.kafka("UncleanLeaderElectionTest.testUncleanLeaderElectionInvalidTopicOverride")
@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in FALSE.items() for v in values])
def test_values_that_it_may_not_have(name: str, value: str) -> None:
    assert (wrong_config({name: value}) or "").startswith(f"{name} = ")


def test_kafkas_controller_parses_all_values_but_no_unknown_key_nor_what_only_a_change_is_refused_for() -> None:
    assert unparsable({"unclean.leader.election.enable": "true", "retention.ms": "soon"}) == (
        "retention.ms = soon: give a whole number from -1 to 9223372036854775807"
    )
    assert unparsable({"retention": "soon", "remote.log.copy.disable": "TRUE"}) is None
    assert unparsable({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}) is None


def test_unknown_ones_and_those_that_contradict_each_other() -> None:
    assert wrong_config({"retention": "1"}) == "retention is no configuration of a topic"
    assert wrong_config({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"})
    assert wrong_config({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "2"}) is None


@given(st.sampled_from(sorted(TOPIC_CONFIGS)), st.text(max_size=12))
def test_no_text_breaks_a_check(name: str, value: str) -> None:
    wrong_config({name: value})


# -- partitions


def grown(*lists: tuple[int, ...], moving: bool = False) -> TopicAssignment:
    assigned = {p: Assignment(r, (9,) if moving else ()) for p, r in enumerate(lists)}
    return TopicAssignment("t", None, assigned, 1, 1)


def growth(wanted: WantedGrowth, topic: TopicAssignment | None, **changes: Any) -> dict[int, Assignment] | TopicRefusal:
    fields: dict[str, Any] = {"brokers": BROKERS, "marked": False, "spare": PARTITIONS_MAX}
    return judge_growth(wanted, topic, **(fields | changes))


def growth_error(count: int, topic: TopicAssignment | None, given: Any = None, **changes: Any) -> TopicError:
    found = growth(WantedGrowth("t", count, given), topic, **changes)
    assert isinstance(found, TopicRefusal)
    assert found.why
    return found.error


@pytest.mark.kafka(
    "AddPartitionsTest.testReplicaPlacementAllServers", "AddPartitionsTest.testReplicaPlacementPartialServers"
)
@pytest.mark.parametrize("first", [1, 2, 3])
def test_added_partitions_go_on_where_the_first_one_begins(first: int) -> None:
    other = 1 + first % 3
    found = growth(WantedGrowth("t", 5), grown((first, other), (other, first)))
    assert isinstance(found, dict)
    placed = place(BROKERS, 3, 2, start=first - 1, shift=first - 1, first_partition=2)
    assert {p: a.replicas for p, a in found.items()} == placed


def test_where_the_first_broker_is_gone_it_begins_at_the_next_or_again_at_the_first() -> None:
    brokers: dict[int, str | None] = {1: None, 3: None}
    for gone, at in ((2, 1), (9, 0)):
        found = growth(WantedGrowth("t", 2), grown((gone,)), brokers=brokers)
        assert isinstance(found, dict)
        assert {p: a.replicas for p, a in found.items()} == place(brokers, 1, 1, start=at, shift=at, first_partition=1)


def test_growth_that_is_refused_in_kafkas_order() -> None:
    topic, moving = grown((1, 2), (2, 3)), grown((1, 2), (2, 3), moving=True)
    assert growth_error(2, None, marked=True) is E.INVALID_TOPIC
    assert growth_error(2, None) is E.UNKNOWN_TOPIC_OR_PARTITION
    assert growth_error(1, moving) is E.REASSIGNMENT_IN_PROGRESS
    assert growth_error(1, topic, ((9,),)) is E.INVALID_PARTITIONS
    assert growth_error(2, topic) is E.INVALID_PARTITIONS
    assert growth_error(-1, topic) is E.INVALID_PARTITIONS
    assert growth_error(3, topic, brokers={1: None}) is E.INVALID_REPLICATION_FACTOR
    assert growth_error(PARTITIONS_MAX + 3, topic) is E.POLICY_VIOLATION
    assert growth_error(3, TopicAssignment("t", None, {1: Assignment((1,))}, 1, 1)) is E.UNKNOWN_SERVER_ERROR


@pytest.mark.kafka(
    "AddPartitionsTest.testWrongReplicaCount", "AddPartitionsTest.testMissingPartitionsInCreatePartitions"
)
@pytest.mark.parametrize("given_", [((1, 9),), ((1, 2), (2, 1)), ((),), ((1, 1),), ((1,),), ()])
def test_given_assignments_that_do_not_fit(given_: Any) -> None:
    assert growth_error(3, grown((1, 2), (2, 3)), given_) is E.INVALID_REPLICA_ASSIGNMENT


def test_given_assignments_are_taken_as_they_are() -> None:
    found = growth(WantedGrowth("t", 3, ((3, 1),)), grown((1, 2), (2, 3)))
    assert found == {2: Assignment((3, 1))}


def test_a_repeated_call_succeeds_by_its_earlier_attempt() -> None:
    topic = grown((1, 2), (2, 3))
    assert growth(WantedGrowth("t", 2), topic, again=True) == {}
    assert growth(WantedGrowth("t", 2, ((2, 3),)), topic, again=True) == {}
    assert growth_error(2, topic, ((3, 2),), again=True) is E.INVALID_PARTITIONS
    assert growth_error(1, topic, again=True) is E.INVALID_PARTITIONS
