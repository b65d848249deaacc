"""Znodes in the shapes that Kafka writes and reads, and what is refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from metadata_store.codecs.base import Malformed
from metadata_store.codecs.broker import decode_broker, encode_broker
from metadata_store.codecs.cluster import (
    ProducerIdBlock,
    decode_cluster_id,
    decode_producer_ids,
    encode_cluster_id,
    encode_producer_ids,
)
from metadata_store.codecs.config import Config, decode_config, encode_config
from metadata_store.codecs.controller import (
    ControllerZnode,
    Migration,
    decode_controller,
    decode_epoch,
    decode_migration,
    encode_controller,
    encode_epoch,
    encode_migration,
)
from metadata_store.codecs.features import FeatureRange, Features, decode_features, encode_features
from metadata_store.codecs.notifications import (
    decode_config_change,
    decode_log_dir_event,
    decode_partitions,
    encode_config_change,
    encode_log_dir_event,
    encode_partitions,
)
from metadata_store.codecs.reassignment import Reassignments, decode_reassignments, encode_reassignments
from metadata_store.codecs.state import decode_state, encode_state
from metadata_store.codecs.topic import decode_topic, encode_topic, topic_id_bytes, topic_id_text
from state_machines.model.types import Assignment, Broker, Endpoint, Leadership, TopicAssignment, TopicPartition

ID_TEXT = "7rWbfVPSS7iSnQ8qgVQ8dg"
ID_BYTES = bytes.fromhex("eeb59b7d53d24bb8929d0f2a81543c76")


def test_state_as_kafka_orders_its_fields() -> None:
    data = b'{"controller_epoch":3,"leader":2,"version":1,"leader_epoch":7,"isr":[2,1]}'
    assert decode_state(data, 9) == Leadership(2, 7, (2, 1), 3, 9)


def test_state_is_written_without_a_recovery_state_unless_it_recovers() -> None:
    plain, recovering = encode_state(-1, 7, (2, 1), 3), encode_state(2, 7, (2,), 3, recovering=True)
    assert json.loads(plain) == {"version": 1, "leader": -1, "leader_epoch": 7, "controller_epoch": 3, "isr": [2, 1]}
    assert json.loads(recovering)["leader_recovery_state"] == 1
    assert decode_state(recovering, 0) == Leadership(2, 7, (2,), 3, 0, recovering=True)
    assert decode_state(recovering.replace(b":1}", b":0}"), 0) == Leadership(2, 7, (2,), 3, 0)


def test_topic_of_every_version() -> None:
    v1 = b'{"version":1,"partitions":{"1":[2,1],"0":[1,2]}}'
    assert decode_topic("", "t", v1, 4, 5) == TopicAssignment(
        "t", None, {1: Assignment((2, 1)), 0: Assignment((1, 2))}, 4, 5
    )
    v2 = b'{"version":2,"partitions":{"0":[3,1,2]},"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]}}'
    assert decode_topic("", "t", v2, 0, 5) == TopicAssignment("t", None, {0: Assignment((3, 1, 2), (3,), (1,))}, 0, 5)
    v3 = v2.replace(b'"version":2', b'"topic_id":"%s","version":3' % ID_TEXT.encode())
    found = decode_topic("", "t", v3, 0, 5)
    assert isinstance(found, TopicAssignment)
    assert (found.topic_id, found.unknown) == (ID_BYTES, {})


def test_topic_is_written_in_version_3_with_its_reassignments_only() -> None:
    data = encode_topic({0: Assignment((3, 1), (3,), (1,)), 1: Assignment((1, 2))}, ID_BYTES)
    assert json.loads(data) == {
        "version": 3,
        "partitions": {"0": [3, 1], "1": [1, 2]},
        "adding_replicas": {"0": [3]},
        "removing_replicas": {"0": [1]},
        "topic_id": ID_TEXT,
    }
    assert "topic_id" not in json.loads(encode_topic({}, None))


def test_topic_ids_are_kafka_uuids() -> None:
    assert topic_id_bytes(ID_TEXT) == ID_BYTES
    assert topic_id_text(ID_BYTES) == ID_TEXT
    assert topic_id_text(bytes.fromhex("ff" * 16)) == "_____________________w"
    zero = decode_topic("", "t", b'{"version":3,"partitions":{},"topic_id":"AAAAAAAAAAAAAAAAAAAAAA"}', 0, 0)
    assert isinstance(zero, TopicAssignment)
    assert zero.topic_id is None


BROKER_V5 = (
    b'{"features":{},"listener_security_protocol_map":{"CLIENT":"PLAINTEXT","INTERNAL":"SSL"},'
    b'"endpoints":["CLIENT://h.example:9092","INTERNAL://[fe80::1%eth0]:9093"],"jmx_port":-1,"port":9092,'
    b'"host":"h.example","version":5,"timestamp":"1600000000000","rack":"r1"}'
)


def test_broker_versions_2_to_5() -> None:
    v5 = decode_broker("", 1, BROKER_V5, 77, 2)
    both = (Endpoint("CLIENT", "h.example", 9092, 0), Endpoint("INTERNAL", "fe80::1%eth0", 9093, 1))
    assert v5 == Broker(1, 77, both, "r1", 2)
    v4 = b'{"version":4,"endpoints":["X://h:1"],"listener_security_protocol_map":{"X":"SASL_SSL"},"rack":null}'
    assert decode_broker("", 1, v4, 7, 0) == Broker(1, 7, (Endpoint("X", "h", 1, 3),))
    v3 = b'{"version":3,"endpoints":["SASL_PLAINTEXT://h:1"],"rack":"r"}'
    assert decode_broker("", 1, v3, 7, 0) == Broker(1, 7, (Endpoint("SASL_PLAINTEXT", "h", 1, 2),), "r")
    v2 = b'{"version":2,"host":"h","port":1,"jmx_port":-1,"timestamp":"1","endpoints":["PLAINTEXT://h:1"]}'
    assert decode_broker("", 1, v2, 7, 0) == Broker(1, 7, (Endpoint("PLAINTEXT", "h", 1),))
    assert decode_broker("", 1, v2.replace(b"//h:1", b"//:1"), 7, 0) == Broker(1, 7, (Endpoint("PLAINTEXT", "", 1),))


def test_a_broker_is_written_as_brokers_write_themselves() -> None:
    broker = decode_broker("", 1, BROKER_V5, 77, 2)
    assert isinstance(broker, Broker)
    assert json.loads(encode_broker(broker, timestamp_ms=1_600_000_000_000)) == json.loads(BROKER_V5)
    secure = Broker(1, 0, (Endpoint("INTERNAL", "h", 1, 3),))
    fields = json.loads(encode_broker(secure, timestamp_ms=1))
    assert (fields["host"], fields["port"], "rack" in fields) == (None, -1, False)


def test_controller_needs_no_more_than_a_broker_id() -> None:
    assert decode_controller("", b'{"brokerid":7}') == ControllerZnode(7)
    data = b'{"version":2,"brokerid":7,"timestamp":"12","kraftControllerEpoch":-1,"nonce":"x"}'
    assert decode_controller("", data) == ControllerZnode(7, 12, -1, {"nonce": "x"})
    assert encode_controller(ControllerZnode(7, 12, -1, {"nonce": "x"})) == data
    assert decode_controller("", b'{"version":9,"brokerid":7,"timestamp":"soon"}') == ControllerZnode(7)


def test_epoch_is_plain_text() -> None:
    assert decode_epoch("", b"12") == 12
    assert encode_epoch(12) == b"12"


def test_migration() -> None:
    found = Migration(3000, 4, 1234567890123, 5)
    assert decode_migration("", encode_migration(found)) == found


def test_partition_lists() -> None:
    data = b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"u","partition":12}]}'
    named = [TopicPartition("t", 0), TopicPartition("u", 12)]
    assert decode_partitions("", data) == named
    assert encode_partitions(named) == data


def test_log_dir_events() -> None:
    assert decode_log_dir_event("", b'{"version":1,"broker":3,"event":1}') == 3
    assert encode_log_dir_event(3) == b'{"version":1,"broker":3,"event":1}'


def test_config_changes_of_both_versions() -> None:
    assert decode_config_change("", b'{"version":2,"entity_path":"topics/t"}') == "topics/t"
    assert decode_config_change("", b'{"version":1,"entity_type":"topics","entity_name":"t"}') == "topics/t"
    assert encode_config_change("topics/t") == b'{"version":2,"entity_path":"topics/t"}'


def test_reassignments() -> None:
    data = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[3,1]}]}'
    found = Reassignments({TopicPartition("t", 0): (3, 1)})
    assert decode_reassignments("", data) == found
    assert encode_reassignments(found.targets) == data


def test_configurations() -> None:
    data = b'{"version":1,"config":{"a":"b"}}'
    assert decode_config("", data) == Config({"a": "b"})
    assert encode_config({"a": "b"}) == data
    assert decode_config("", None) == decode_config("", b"") == Config({})


def test_features_of_both_versions() -> None:
    v1 = b'{"version":1,"status":1,"features":{"f":{"max_version_level":3,"min_version_level":1}}}'
    v2 = b'{"version":2,"status":0,"features":{"f":{"max_version_level":3}}}'
    for data, version, enabled, low in ((v1, 1, True, 1), (v2, 2, False, None)):
        found = Features(version, enabled, {"f": FeatureRange(3, low)})
        assert decode_features("", data) == found
        assert encode_features(found) == data


def test_cluster_id_and_producer_ids() -> None:
    assert decode_cluster_id("", b'{"version":"1","id":"abc"}') == "abc"
    assert encode_cluster_id("abc") == b'{"version":"1","id":"abc"}'
    data = b'{"version":1,"broker":2,"block_start":"1000","block_end":"1999"}'
    assert decode_producer_ids("", data) == ProducerIdBlock(2, 1000, 1999)
    assert encode_producer_ids(ProducerIdBlock(2, 1000, 1999)) == data
    assert decode_producer_ids("", None) is None


DECODERS: dict[str, Callable[[bytes | None], object]] = {
    "state": lambda data: decode_state(data, 0, path="/p"),
    "topic": lambda data: decode_topic("/p", "t", data, 0, 0),
    "broker": lambda data: decode_broker("/p", 1, data, 0, 0),
    "controller": lambda data: decode_controller("/p", data),
    "epoch": lambda data: decode_epoch("/p", data),
    "migration": lambda data: decode_migration("/p", data),
    "partitions": lambda data: decode_partitions("/p", data),
    "log dir event": lambda data: decode_log_dir_event("/p", data),
    "config change": lambda data: decode_config_change("/p", data),
    "reassignments": lambda data: decode_reassignments("/p", data),
    "config": lambda data: decode_config("/p", data or b"[]"),
    "features": lambda data: decode_features("/p", data),
    "cluster id": lambda data: decode_cluster_id("/p", data),
    "producer ids": lambda data: decode_producer_ids("/p", data or b""),
}


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize(
    "data",
    [None, b"[]", b"{", b"null", b"\xff\xfe", b'{"version":99}', b"[" * 100_000, b'{"a":' * 100_000, b'{"a":"\xff"}'],
)
def test_bad_data_is_a_value_with_path_and_reason(kind: str, data: bytes | None) -> None:
    found = DECODERS[kind](data)
    assert isinstance(found, Malformed)
    assert found.path == "/p"
    assert found.why


@pytest.mark.parametrize(
    ("kind", "data", "why"),
    [
        ("state", b'{"version":2,"leader":1,"leader_epoch":1,"controller_epoch":1,"isr":[1]}', "version 2 is unknown"),
        ("state", b'{"version":1,"leader":1,"leader_epoch":1,"controller_epoch":1,"isr":[-1]}', r"isr"),
        ("state", b'{"version":1,"leader":1,"leader_epoch":1,"controller_epoch":1}', "isr"),
        ("state", b'{"version":1,"leader":4294967296,"leader_epoch":1,"controller_epoch":1,"isr":[1]}', "leader"),
        (
            "state",
            b'{"version":1,"leader":1,"leader_epoch":1,"controller_epoch":1,"isr":[1],"leader_recovery_state":2}',
            "leader_recovery_state 2",
        ),
        ("topic", b'{"version":4,"partitions":{}}', "version 4 is unknown, this program knows 1, 2, 3"),
        ("topic", b'{"version":3,"partitions":{"0":[]}}', "partition 0"),
        ("topic", b'{"version":3,"partitions":{"0":[1,1]}}', "one twice"),
        ("topic", b'{"version":3,"partitions":{"-1":[1]}}', ">= 0"),
        ("topic", b'{"version":3,"partitions":{},"topic_id":"short"}', "topic_id 'short'"),
        ("topic", b'{"version":3,"partitions":{},"topic_id":"7rWbfVPSS7iSnQ8qgVQ8dh"}', "topic_id"),
        ("broker", b'{"version":1,"host":"h","port":1}', "version 1 is unknown"),
        ("broker", b'{"version":4,"endpoints":[],"listener_security_protocol_map":{}}', "no endpoints"),
        ("broker", b'{"version":4,"endpoints":["h:1"],"listener_security_protocol_map":{}}', "endpoint 'h:1'"),
        ("broker", b'{"version":4,"endpoints":["A://h:70000"],"listener_security_protocol_map":{}}', "endpoint"),
        ("broker", b'{"version":4,"endpoints":["A://h:1"],"listener_security_protocol_map":{}}', "listener A has"),
        ("epoch", b"-1", "is not a controller epoch"),
        ("epoch", b"99999999999", "is not a controller epoch"),
        ("epoch", "٣".encode(), "is not a controller epoch"),
        ("log dir event", b'{"version":1,"broker":3,"event":2}', "event 2 is unknown"),
        ("config change", b'{"version":2,"entity_type":"topics","entity_name":"t"}', "names no entity"),
        ("features", b'{"version":2,"status":3}', "status 3"),
        ("producer ids", b'{"version":1,"broker":1,"block_start":"5","block_end":"4"}', "the block 5 to 4"),
        ("producer ids", b'{"version":1,"broker":1,"block_start":"x","block_end":"4"}', "'x'"),
    ],
)
def test_the_reason_names_what_is_wrong(kind: str, data: bytes, why: str) -> None:
    found = DECODERS[kind](data)
    assert isinstance(found, Malformed)
    assert why in str(found)
