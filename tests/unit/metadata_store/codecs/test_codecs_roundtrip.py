"""Written values are read back the same; fields that this program does not know survive a rewrite."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from metadata_store.codecs.broker import decode_broker, encode_broker
from metadata_store.codecs.config import Config, decode_config, encode_config
from metadata_store.codecs.controller import ControllerZnode, decode_controller, encode_controller
from metadata_store.codecs.features import FeatureRange, Features, decode_features, encode_features
from metadata_store.codecs.notifications import Partitions, decode_partitions, encode_partitions
from metadata_store.codecs.reassignment import Reassignments, decode_reassignments, encode_reassignments
from metadata_store.codecs.state import decode_state, encode_state
from metadata_store.codecs.topic import decode_topic, encode_topic
from state_machines.model.types import Assignment, Broker, Endpoint, Leadership, TopicAssignment, TopicPartition

int32 = st.integers(0, 2**31 - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
replicas = st.lists(int32, min_size=1, max_size=6, unique=True).map(tuple)
topic_ids = st.none() | st.binary(min_size=16, max_size=16).filter(any)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
KNOWN = {
    "version",
    "partitions",
    "adding_replicas",
    "removing_replicas",
    "topic_id",
    "brokerid",
    "timestamp",
    "kraftControllerEpoch",
    "regent",
    "regentListener",
    "regentSeal",
    "config",
    "status",
    "features",
}
unknown = st.dictionaries(text.filter(lambda name: name not in KNOWN), values, max_size=3)
partitions = st.lists(st.builds(TopicPartition, text, int32), max_size=5)


@st.composite
def assignments(draw: st.DrawFn) -> Assignment:
    chosen = draw(replicas)
    if draw(st.booleans()):
        return Assignment(chosen)
    return Assignment(chosen, draw(replicas), draw(replicas))


@given(
    st.integers(-2, 2**31 - 1), int32, st.lists(int32, max_size=6).map(tuple), int32, st.integers(0, 99), st.booleans()
)
def test_states_are_read_back_as_written(
    leader: int, leader_epoch: int, isr: tuple[int, ...], controller_epoch: int, version: int, recovering: bool
) -> None:
    data = encode_state(leader, leader_epoch, isr, controller_epoch, recovering)
    assert decode_state(data, version) == Leadership(leader, leader_epoch, isr, controller_epoch, version, recovering)
    assert ("leader_recovery_state" in json.loads(data)) is recovering


@given(st.dictionaries(int32, assignments(), max_size=5), topic_ids, unknown)
def test_topics_are_read_back_as_written(
    found: dict[int, Assignment], topic_id: bytes | None, more: dict[str, object]
) -> None:
    data = encode_topic(found, topic_id, more)
    decoded = decode_topic("", "t", data, 3, 4)
    assert decoded == TopicAssignment("t", topic_id, found, 3, 4, more)
    assert isinstance(decoded, TopicAssignment)
    assert encode_topic(decoded.partitions, decoded.topic_id, decoded.unknown) == data


endpoints = st.builds(
    Endpoint,
    st.from_regex(r"[A-Z_]{1,8}", fullmatch=True),
    st.sampled_from(["", "h", "10.0.0.1", "fe80::1", "a-b.example"]),
    st.integers(0, 65535),
    st.integers(0, 3),
)


@given(
    st.lists(endpoints, min_size=1, max_size=4, unique_by=lambda e: e.listener).map(tuple),
    st.none() | text,
    int32,
    int32,
)
def test_registrations_of_brokers_are_read_back_as_written(
    found: tuple[Endpoint, ...], rack: str | None, czxid: int, version: int
) -> None:
    broker = Broker(5, czxid, found, rack, version)
    assert decode_broker("", 5, encode_broker(broker, timestamp_ms=1), czxid, version) == broker


@given(int32, st.integers(0, 2**53), unknown, st.none() | text, st.none() | text, st.none() | text)
def test_controllers_are_read_back_as_written(
    broker: int, timestamp_ms: int, more: dict[str, object], nonce: str | None, listener: str | None, seal: str | None
) -> None:
    found = ControllerZnode(broker, timestamp_ms, -1, more, nonce, listener, seal)
    assert decode_controller("", encode_controller(found)) == found


@given(st.dictionaries(text, text, max_size=4), unknown)
def test_configurations_are_read_back_as_written(entries: dict[str, str], more: dict[str, object]) -> None:
    assert decode_config("", encode_config(entries, more)) == Config(entries, more)


@given(st.booleans(), st.dictionaries(text, st.tuples(int32, int32), max_size=4), st.sampled_from([1, 2]), unknown)
def test_features_are_read_back_as_written(
    enabled: bool, ranges: dict[str, tuple[int, int]], version: int, more: dict[str, object]
) -> None:
    levels = {name: FeatureRange(high, low if version == 1 else None) for name, (low, high) in ranges.items()}
    found = Features(version, enabled, levels, more)
    assert decode_features("", encode_features(found)) == found


@given(partitions)
def test_lists_of_partitions_are_read_back_as_written(named: list[TopicPartition]) -> None:
    assert decode_partitions("", encode_partitions(named)) == Partitions(named)


@given(st.dictionaries(st.builds(TopicPartition, text, int32), replicas, max_size=4), unknown)
def test_reassignments_are_read_back_as_written(
    targets: dict[TopicPartition, tuple[int, ...]], more: dict[str, object]
) -> None:
    assert decode_reassignments("", encode_reassignments(targets, more)) == Reassignments(targets, more)


@given(st.binary(max_size=60) | values.map(lambda value: json.dumps(value).encode()))
def test_no_bytes_make_a_decoder_raise(data: bytes) -> None:
    decode_state(data, 0)
    decode_topic("", "t", data, 0, 0)
    decode_broker("", 1, data, 0, 0)
    decode_controller("", data)
    decode_features("", data)
    decode_reassignments("", data)
