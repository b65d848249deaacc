"""Written values are read back the same; unknown fields survive, and unusable entries cost themselves alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata_store.codecs.base import MalformedNode
from metadata_store.codecs.cluster import (
    Config,
    FeatureRange,
    Features,
    decode_broker,
    decode_config,
    decode_features,
    encode_broker,
    encode_config,
    encode_features,
)
from metadata_store.codecs.controller import ControllerZnode, decode_controller, encode_controller
from metadata_store.codecs.notifications import UNUSABLE_MAX, Partitions, Unusable, decode_partitions, encode_partitions
from metadata_store.codecs.topic import decode_state, decode_topic, encode_state, encode_topic
from metadata_store.nodes.reassignment_node import Reassignments, decode_reassignments, encode_reassignments
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


FIRST, LAST = TopicPartition("t", 0), TopicPartition("t", 9)
GOOD = b'{"topic":"t","partition":0,"replicas":[2,3]}', b'{"topic":"t","partition":9,"replicas":[3,1]}'

UNUSABLE = [
    b'{"topic":"t","partition":-1,"replicas":[2,3]}',
    b'{"topic":"t","partition":2147483648,"replicas":[2,3]}',
    b'{"topic":"t","partition":1%s,"replicas":[2,3]}' % (b"0" * 5000),
    b'{"topic":"t","partition":1.5,"replicas":[2,3]}',
    b'{"topic":"t","partition":"1","replicas":[2,3]}',
    b'{"topic":"t","partition":NaN,"replicas":[2,3]}',
    b'{"topic":"t","partition":null,"replicas":[2,3]}',
    b'{"topic":"t","replicas":[2,3]}',
    b'{"topic":7,"partition":1,"replicas":[2,3]}',
    b'{"topic":"\xff","partition":1,"replicas":[2,3]}',
    b'{"topic":"\\ud800","partition":1,"replicas":[2,3]}',
    b'{"partition":1,"replicas":[2,3]}',
    b"[]",
    b"null",
    b'"t-1"',
    b"1e999",
]
WITHOUT_TARGET = [
    b'{"topic":"t","partition":1,"replicas":[2,-3]}',
    b'{"topic":"t","partition":1,"replicas":[2,"3"]}',
    b'{"topic":"t","partition":1,"replicas":"2,3"}',
    b'{"topic":"t","partition":1}',
]


def znode(*entries: bytes) -> bytes:
    return b'{"version":1,"partitions":[%s],"vendor":1}' % b",".join(entries)


@pytest.mark.parametrize("bad", [*UNUSABLE, *WITHOUT_TARGET])
def test_an_unusable_entry_of_a_reassignment_costs_itself_alone(bad: bytes) -> None:
    found = decode_reassignments("/p", znode(GOOD[0], bad, GOOD[1]))
    assert isinstance(found, Reassignments)
    assert (found.targets, found.unknown) == ({FIRST: (2, 3), LAST: (3, 1)}, {"vendor": 1})
    assert (found.unusable.count, found.unusable.entries) == (1, 3)
    assert "partitions[1]: " in str(found.unusable)


@pytest.mark.parametrize("bad", UNUSABLE)
def test_an_unusable_entry_of_a_list_of_partitions_costs_itself_alone(bad: bytes) -> None:
    found = decode_partitions("/p", znode(GOOD[0], bad, GOOD[1]))
    assert isinstance(found, Partitions)
    assert (found.named, found.unusable.count) == ([FIRST, LAST], 1)


entry_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.sampled_from(["topic", "partition"]), inner)
    ),
    max_leaves=5,
)


@given(st.lists(entry_values, max_size=4), st.dictionaries(st.text(min_size=12), entry_values, max_size=2))
def test_whatever_stands_beside_an_entry_it_is_decoded_and_can_be_written_again(
    strange: list[object], more: dict[str, object]
) -> None:
    entries = [json.loads(GOOD[0]), *strange, json.loads(GOOD[1])]
    found = decode_reassignments("/p", json.dumps({"version": 1, "partitions": entries, **more}).encode())
    assert isinstance(found, Reassignments)
    assert found.targets.keys() >= {FIRST, LAST}
    again = decode_reassignments("/p", encode_reassignments(found.targets, found.unknown))
    assert isinstance(again, Reassignments)
    assert (again.targets, again.unusable) == (found.targets, Unusable())


def test_the_first_unusable_entries_are_told_and_the_others_counted() -> None:
    found = decode_partitions("/p", znode(*[b"{}"] * 5))
    assert isinstance(found, Partitions)
    assert str(found.unusable).startswith("5 of 5 entries cannot be used (partitions[0]: Object missing required field")
    assert str(found.unusable).endswith("; 2 more)")
    assert "partitions[3]" not in str(found.unusable)


def test_a_znode_of_nothing_but_unusable_entries_beyond_the_bound_is_malformed() -> None:
    found = decode_partitions("/p", znode(*[b"1"] * (UNUSABLE_MAX + 1)))
    assert isinstance(found, MalformedNode)
    assert f"more than {UNUSABLE_MAX}" in found.why


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"[]",
        b"{",
        b'{"version":1}',
        b'{"version":1,"partitions":{}}',
        b'{"version":2,"partitions":[]}',
        b"[" * 100_000,
    ],
)
def test_what_has_no_list_of_entries_is_malformed(data: bytes | None) -> None:
    assert isinstance(decode_reassignments("/p", data), MalformedNode)
    assert isinstance(decode_partitions("/p", data), MalformedNode)
