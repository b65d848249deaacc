"""Files of plans, the view of a model, and the time of a plan at a rate."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from state_machines.decisions.plan_progress import PlannedMove
from state_machines.model.cluster import Cluster
from state_machines.model.types import Assignment, TopicAssignment
from state_machines.planning.cluster_view import PlannedBroker, view_in_turns, view_of
from state_machines.planning.goals import Decommission, Target, TargetReplicas
from state_machines.planning.json_files import (
    FILE_BYTES_MAX,
    VERSION,
    SavedPlan,
    UnusableFile,
    decode_kafka,
    decode_plan,
    encode_kafka,
    encode_plan,
)
from state_machines.planning.plan import INT32_MAX, TOPIC_CHARS_MAX, Expected, Received, expected, received
from state_machines.planning.planner import plan
from state_machines.portions import at_once
from tests.kit.kafka.model import broker, topic_gone
from tests.kit.kafka.planning import CLUSTER_ID, DAEMON, assigned, goals, make_view, views

RACKS: dict[int, str | None] = {1: None, 2: None, 3: None, 4: None}
MOVE: dict[str, Any] = {"topic": "t", "partition": 0, "origin": [1, 2], "target": [2, 3], "bytes": 7}


def file(**changes: Any) -> bytes:
    """Makes a plan's file of one move, with other or further fields."""
    fields = {"version": VERSION, "cluster_id": CLUSTER_ID, "goal": "decommission brokers 1", "moves": [MOVE]}
    return json.dumps({**fields, **changes}).encode()


def moving(**changes: Any) -> bytes:
    """Makes a plan's file whose one move has other or further fields."""
    return file(moves=[{**MOVE, **changes}])


def without(field: str) -> bytes:
    return json.dumps({k: v for k, v in json.loads(file()).items() if k != field}).encode()


@settings(max_examples=60)
@given(views().flatmap(lambda view: goals(view).map(lambda goal: (view, plan(view, goal)))))
def test_a_plan_is_read_back_and_its_targets_plan_the_same_moves(case: Any) -> None:
    view, found = case
    saved = decode_plan(encode_plan(found))
    assert saved == SavedPlan(VERSION, CLUSTER_ID, found.goal, found.moves)
    given_targets = decode_kafka(encode_kafka(found.moves))
    if found.moves:
        assert plan(view, given_targets).moves == found.moves


def test_a_plan_s_file_is_versioned_json() -> None:
    view = make_view(RACKS, {"t": [(1, 2)]}, sizes={("t", 0): 7}, cordoned=[4])
    assert json.loads(encode_plan(plan(view, Decommission((1,))))) == json.loads(file())


UNUSABLE: list[tuple[str, bytes, str]] = [
    ("empty", b"", "the file is empty: write the plan again"),
    ("blank", b" \n", "the file is empty: write the plan again"),
    ("no JSON", b"{", "the file is not as expected: Input data was truncated"),
    ("no UTF-8", file(goal="x").replace(b"x", b"\xff"), "the file is not as expected: "),
    ("deep", b'{"version":1,"goal":' + b"[" * 100_000, "the file is not as expected: "),
    ("a list", b"[]", "the file is not as expected: Expected `object`, got `array`"),
    ("no version", without("version"), "the file is not as expected: Object missing required field `version`"),
    ("no moves", without("moves"), "the file is not as expected: Object missing required field `moves`"),
    (
        "newer",
        file(version=VERSION + 1, hints={}),
        "version = 2: this program knows 1; upgrade it, or plan again with it",
    ),
    ("version 0", file(version=0), "version = 0: give 1"),
    ("unknown field", file(hints=1), "the file is not as expected: Object contains unknown field `hints`"),
    ("id as text", moving(target=["3", 2]), "the file is not as expected: Expected `int`, got `str`"),
    ("negative broker", moving(target=[3, -1]), "the file is not as expected: Expected `int` >= 0"),
    ("large broker", moving(target=[INT32_MAX + 1]), f"the file is not as expected: Expected `int` <= {INT32_MAX}"),
    ("large partition", moving(partition=INT32_MAX + 1), "the file is not as expected: Expected `int` <= "),
    ("negative bytes", moving(bytes=-1), "the file is not as expected: Expected `int` >= 0"),
    ("no topic", moving(topic=""), "the file is not as expected: Expected `str` of length >= 1"),
    ("long topic", moving(topic="t" * 250), "the file is not as expected: Expected `str` of length <= 249"),
    ("twice", file(moves=[MOVE, {**MOVE, "target": [4]}]), "moves[1]: t-0 has a move already; keep one of them"),
    ("no target", moving(target=[]), "moves[0].target = [] of t-0: name at least one broker"),
    ("no origin", moving(origin=[]), "moves[0].origin = [] of t-0: name at least one broker"),
    ("a broker twice", moving(target=[3, 3]), "moves[0].target = [3, 3] of t-0: name each broker once"),
    ("origin twice", moving(origin=[1, 1]), "moves[0].origin = [1, 1] of t-0: name each broker once"),
    ("no change", moving(target=[1, 2]), "moves[0].target = [1, 2] of t-0 is its origin: leave it out"),
]


@pytest.mark.parametrize(("data", "why"), [case[1:] for case in UNUSABLE], ids=[case[0] for case in UNUSABLE])
def test_an_unusable_file_is_refused_with_its_fault(data: bytes, why: str) -> None:
    with pytest.raises(UnusableFile) as refused:
        decode_plan(data)
    assert str(refused.value).startswith(why)


@pytest.mark.parametrize(
    "data",
    [
        moving(target=[0, INT32_MAX], partition=INT32_MAX),
        moving(topic="t" * TOPIC_CHARS_MAX),
        moving(bytes=0),
        moving(bytes=None),
        moving(target=[2, 1]),
        file(moves=[]),
        file(moves=[MOVE, {**MOVE, "partition": 1}]),
    ],
)
def test_a_file_just_inside_the_bounds_is_read(data: bytes) -> None:
    assert decode_plan(data).cluster_id == CLUSTER_ID


def test_a_file_of_the_most_bytes_is_read_and_written_and_one_byte_more_is_refused() -> None:
    assert FILE_BYTES_MAX == 64 * 1024 * 1024
    found = plan(make_view(RACKS, {"t": [(1, 2)]}), Decommission((1,)))
    data, kafka = encode_plan(found), encode_kafka(found.moves)
    assert decode_plan(data, bytes_max=len(data)).moves == found.moves
    assert encode_plan(found, bytes_max=len(data)) == data
    assert decode_kafka(kafka, bytes_max=len(kafka)).partitions
    assert encode_kafka(found.moves, bytes_max=len(kafka)) == kafka
    for size, act in (
        (len(data), lambda most: decode_plan(data, bytes_max=most)),
        (len(data), lambda most: encode_plan(found, bytes_max=most)),
        (len(kafka), lambda most: decode_kafka(kafka, bytes_max=most)),
        (len(kafka), lambda most: encode_kafka(found.moves, bytes_max=most)),
    ):
        with pytest.raises(UnusableFile) as refused:
            act(size - 1)
        text = f"the file has {size} bytes, more than {size - 1}: limit the plan to some topics"
        assert str(refused.value) == text


# -- the JSON of Kafka's tool


def kafka(version: Any = 1, **partition: Any) -> bytes:
    fields = {"topic": "t", "partition": 0, "replicas": [1, 3], **partition}
    return json.dumps({"version": version, "partitions": [fields]}).encode()


@pytest.mark.parametrize("data", [kafka(), kafka(log_dirs=["any", "any"]), kafka(log_dirs=[]), kafka(comment="mine")])
def test_kafka_s_json_is_a_goal_of_given_replicas(data: bytes) -> None:
    assert decode_kafka(data) == Target((TargetReplicas("t", 0, (1, 3)),))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "the file is empty: write the plan again"),
        (b'{"partitions":[]}', "the file is not as expected: Object missing required field `version`"),
        (kafka(version=2), "version = 2: give 1"),
        (kafka(version=0), "version = 0: give 1"),
        (kafka(replicas="1,3"), "the file is not as expected: Expected `array`, got `str`"),
        (
            kafka(log_dirs=["any", "/data"]),
            "partitions[0].log_dirs = [any, /data] of t-0: plans choose no log directory; give 'any' for each",
        ),
        (
            kafka(log_dirs=["any"]),
            "partitions[0].log_dirs = [any] of t-0: give one for each of the 2 replicas, or none",
        ),
    ],
)
def test_kafka_s_json_that_is_no_plan_is_refused_with_its_fault(data: bytes, why: str) -> None:
    with pytest.raises(UnusableFile) as refused:
        decode_kafka(data)
    assert str(refused.value).startswith(why)


def test_a_plan_is_written_for_kafka_s_tool_with_its_targets() -> None:
    found = plan(make_view(RACKS, {"t": [(1, 2)]}, cordoned=[4]), Decommission((1,)))
    partition = {"topic": "t", "partition": 0, "replicas": [2, 3]}
    assert json.loads(encode_kafka(found.moves)) == {"version": 1, "partitions": [partition]}


def test_rows_are_sorted_by_topic_and_partition_and_found_by_name_also_where_numbers_have_holes() -> None:
    numbers = {"c": range(10), "a": (7, 2, 3), "b": (9, 8)}
    cluster = Cluster(7)
    for name, found in numbers.items():
        cluster.observe_topic(TopicAssignment(name, None, {p: Assignment((p + 1,)) for p in found}, 0, 50))
    view = view_of(cluster, CLUSTER_ID)
    names = [(t, p) for t in "abc" for p in sorted(numbers[t])]
    assert list(view.topics) == ["a", "b", "c"]
    assert list(view.partitions) == [p for _, p in names]
    assert assigned(view) == {(t, p): Assignment((p + 1,)) for t, p in names}
    for t, p in ((t, p) for t in "abcx" for p in range(-1, 12)):
        assert view.find(t, p) == (names.index((t, p)) if (t, p) in names else None)


def test_brokers_are_those_registered_and_absent_ones_that_assignments_name_without_daemons() -> None:
    view = make_view({1: "a", 2: "b", 3: "c"}, {"t": [(1, 5), (DAEMON,)]}, dead=[3], stopping=[2], cordoned=[1, 5, 9])
    assert view.brokers == {
        1: PlannedBroker(1, "a", live=True, cordoned=True),
        2: PlannedBroker(2, "b", live=False),
        5: PlannedBroker(5, None, live=False, cordoned=True),
    }
    assert [b for b in (*view.brokers, 3, DAEMON) if view.is_live(b)] == [1]


@pytest.mark.parametrize(
    ("live", "cordoned"), [(live, cordoned) for live in (True, False) for cordoned in (True, False)]
)
def test_only_a_live_broker_without_a_cordon_may_host(live: bool, cordoned: bool) -> None:
    view = make_view({1: None}, {"t": [(1,)]}, dead=() if live else [1], cordoned=[1] if cordoned else ())
    assert view.brokers[1].may_host == (live and not cordoned) == (view.why_no_host(1) is None)


def test_the_assignment_is_that_of_the_topic_znode_which_a_reassignment_has_written() -> None:
    cluster = Cluster(7)
    cluster.observe_brokers({b: broker(b) for b in (1, 2)})
    cluster.observe_topic(TopicAssignment("t", None, {0: Assignment((1,)), 1: Assignment((1,))}, 0, 50))
    written = Assignment((1,)).reassigned_to((4,))
    cluster.observe_assignments("t", 1, {1: written})
    view = view_of(cluster, CLUSTER_ID)
    assert view.assignments == [Assignment((1,)), written]
    assert view.brokers.keys() == {1, 2, 4}


def test_topics_that_vanished_are_not_in_the_view_and_those_to_be_deleted_are_named() -> None:
    cluster = Cluster(7)
    for name in "abc":
        cluster.observe_topic(TopicAssignment(name, None, {0: Assignment((1,))}, 0, 50))
    topic_gone(cluster, "b")
    cluster.observe_deletions(["c"])
    view = view_of(cluster, CLUSTER_ID, min_isr={"a": 2})
    assert list(view.topics) == ["a", "c"]
    assert view.deleting == {"c"}
    assert (view.min_isr_of("a"), view.min_isr_of("c")) == (2, 1)


def test_a_view_stays_as_it_is_when_the_model_changes() -> None:
    cluster = Cluster(7)
    cluster.observe_topic(TopicAssignment("t", None, {0: Assignment((1,))}, 0, 50))
    view = view_of(cluster, CLUSTER_ID)
    cluster.observe_topic(TopicAssignment("t", None, {0: Assignment((1,)), 1: Assignment((2,))}, 1, 50))
    topic_gone(cluster, "t")
    assert assigned(view) == {("t", 0): Assignment((1,))}


def test_a_view_is_made_in_turns_between_which_topics_may_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("state_machines.planning.cluster_view.ROWS_PER_TURN", 2)
    cluster = Cluster(7)
    for name in "abcd":
        cluster.observe_topic(TopicAssignment(name, None, {0: Assignment((1,)), 1: Assignment((2,))}, 0, 50))
    turns = view_in_turns(cluster, CLUSTER_ID)
    next(turns)
    topic_gone(cluster, "c")
    view = at_once(turns)
    assert list(view.topics) == ["a", "b", "d"]
    assert view == view_of(cluster, CLUSTER_ID)
    some = at_once(view_in_turns(cluster, CLUSTER_ID, of=("d", "c")))
    assert assigned(some) == {("d", 0): Assignment((1,)), ("d", 1): Assignment((2,))}
    assert some.brokers == view.brokers


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
