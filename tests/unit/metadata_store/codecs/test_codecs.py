"""Znodes in the shapes that Kafka writes and reads, and those that are refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from metadata_store.codecs.cluster import (
    Config,
    FeatureRange,
    Features,
    ProducerIdBlock,
    decode_broker,
    decode_cluster_id,
    decode_config,
    decode_features,
    decode_producer_ids,
    encode_broker,
    encode_cluster_id,
    encode_config,
    encode_features,
    encode_producer_ids,
)
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
from metadata_store.codecs.notifications import (
    Partitions,
    decode_config_change,
    decode_log_dir_event,
    decode_partitions,
    encode_config_change,
    encode_log_dir_event,
    encode_partitions,
)
from metadata_store.codecs.topic import (
    decode_state,
    decode_topic,
    encode_state,
    encode_topic,
    topic_id_bytes,
    topic_id_text,
)
from metadata_store.nodes.acl_nodes import decode_acls, decode_extended_change
from metadata_store.nodes.reassignment_node import Reassignments, decode_reassignments, encode_reassignments
from state_machines.model.types import Assignment, Broker, Endpoint, Leadership, TopicAssignment, TopicPartition

ID_TEXT = "7rWbfVPSS7iSnQ8qgVQ8dg"
ID_BYTES = bytes.fromhex("eeb59b7d53d24bb8929d0f2a81543c76")

DECODERS: dict[str, Callable[[bytes | None], object]] = {
    "state": lambda data: decode_state(data, 9, path="/p"),
    "topic": lambda data: decode_topic("/p", "t", data, 4, 5),
    "broker": lambda data: decode_broker("/p", 1, data, 77, 2),
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
    "acls": lambda data: decode_acls("/p", data),
    "acl change": lambda data: decode_extended_change("/p", data),
}


def topic(*partitions: Assignment, topic_id: bytes | None = None) -> TopicAssignment:
    return TopicAssignment("t", topic_id, dict(enumerate(partitions)), 4, 5)


def broker(*endpoints: Endpoint, rack: str | None = None) -> Broker:
    return Broker(1, 77, endpoints, rack, 2)


MOVING = Assignment((3, 1, 2), (3,), (1,))
V2 = b'"partitions":{"0":[3,1,2]},"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]}'
NAMED = [TopicPartition("t", 0), TopicPartition("u", 12)]
NAMED_TEXT = b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"u","partition":12}]}'
STATE = b'"controller_epoch":3,"leader":2,"version":1,"leader_epoch":7,"isr":[2,1]'
MIGRATION = (
    b'{"version":0,"kraft_controller_id":3000,"kraft_controller_epoch":4,"kraft_metadata_offset":%d,'
    b'"kraft_metadata_epoch":5}'
)
CONTROLLER = b'{"version":2,"brokerid":7,"timestamp":"12","kraftControllerEpoch":-1,"nonce":"x"}'


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        ("state", b"{%s}" % STATE, Leadership(2, 7, (2, 1), 3, 9)),
        ("state", b'{%s,"leader_recovery_state":1}' % STATE, Leadership(2, 7, (2, 1), 3, 9, recovering=True)),
        ("state", b'{%s,"leader_recovery_state":0}' % STATE, Leadership(2, 7, (2, 1), 3, 9)),
        ("topic", b'{"version":1,"partitions":{"1":[2,1],"0":[1,2]}}', topic(Assignment((1, 2)), Assignment((2, 1)))),
        ("topic", b'{"version":2,%s}' % V2, topic(MOVING)),
        ("topic", b'{"version":3,"topic_id":"%s",%s}' % (ID_TEXT.encode(), V2), topic(MOVING, topic_id=ID_BYTES)),
        ("topic", b'{"version":3,"partitions":{},"topic_id":"AAAAAAAAAAAAAAAAAAAAAA"}', topic()),
        ("broker", b'{"version":2,"host":"h","endpoints":["PLAINTEXT://h:1"]}', broker(Endpoint("PLAINTEXT", "h", 1))),
        ("broker", b'{"version":2,"endpoints":["PLAINTEXT://:1"]}', broker(Endpoint("PLAINTEXT", "", 1))),
        (
            "broker",
            b'{"version":3,"endpoints":["SASL_PLAINTEXT://h:1"],"rack":"r"}',
            broker(Endpoint("SASL_PLAINTEXT", "h", 1, 2), rack="r"),
        ),
        (
            "broker",
            b'{"version":4,"endpoints":["X://h:1"],"listener_security_protocol_map":{"X":"SASL_SSL"},"rack":null}',
            broker(Endpoint("X", "h", 1, 3)),
        ),
        ("controller", b'{"brokerid":7}', ControllerZnode(7)),
        ("controller", b'{"version":9,"brokerid":7,"timestamp":"soon"}', ControllerZnode(7)),
        ("config change", b'{"version":1,"entity_type":"topics","entity_name":"t"}', "topics/t"),
    ],
)
def test_every_form_that_kafka_reads_is_decoded(kind: str, data: bytes, value: object) -> None:
    assert DECODERS[kind](data) == value


FEATURES_V1 = b'{"version":1,"status":1,"features":{"f":{"max_version_level":3,"min_version_level":1}}}'
FEATURES_V2 = b'{"version":2,"status":0,"features":{"f":{"max_version_level":3}}}'


@pytest.mark.parametrize(
    ("kind", "data", "value", "encode"),
    [
        (
            "controller",
            CONTROLLER,
            ControllerZnode(7, 12, -1, {"nonce": "x"}),
            lambda: encode_controller(ControllerZnode(7, 12, -1, {"nonce": "x"})),
        ),
        ("epoch", b"12", 12, lambda: encode_epoch(12)),
        (
            "migration",
            MIGRATION % 1234567890123,
            Migration(3000, 4, 1234567890123, 5),
            lambda: encode_migration(Migration(3000, 4, 1234567890123, 5)),
        ),
        ("partitions", NAMED_TEXT, Partitions(NAMED), lambda: encode_partitions(NAMED)),
        ("log dir event", b'{"version":1,"broker":3,"event":1}', 3, lambda: encode_log_dir_event(3)),
        (
            "config change",
            b'{"version":2,"entity_path":"topics/t"}',
            "topics/t",
            lambda: encode_config_change("topics/t"),
        ),
        (
            "reassignments",
            b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[3,1]}]}',
            Reassignments({TopicPartition("t", 0): (3, 1)}),
            lambda: encode_reassignments({TopicPartition("t", 0): (3, 1)}),
        ),
        ("config", b'{"version":1,"config":{"a":"b"}}', Config({"a": "b"}), lambda: encode_config({"a": "b"})),
        (
            "features",
            FEATURES_V1,
            Features(1, True, {"f": FeatureRange(3, 1)}),
            lambda: encode_features(Features(1, True, {"f": FeatureRange(3, 1)})),
        ),
        (
            "features",
            FEATURES_V2,
            Features(2, False, {"f": FeatureRange(3)}),
            lambda: encode_features(Features(2, False, {"f": FeatureRange(3, 1)})),
        ),
        ("cluster id", b'{"version":"1","id":"abc"}', "abc", lambda: encode_cluster_id("abc")),
        (
            "producer ids",
            b'{"version":1,"broker":2,"block_start":"1000","block_end":"1999"}',
            ProducerIdBlock(2, 1000, 1999),
            lambda: encode_producer_ids(ProducerIdBlock(2, 1000, 1999)),
        ),
    ],
)
def test_values_are_decoded_and_encoded_as_kafka_does(
    kind: str, data: bytes, value: object, encode: Callable[[], bytes]
) -> None:
    assert DECODERS[kind](data) == value
    assert encode() == data


def test_znodes_without_data_are_empty_configurations_and_no_producer_ids() -> None:
    assert decode_config("", None) == decode_config("", b"") == Config({})
    assert decode_producer_ids("", None) is None


def test_a_state_has_a_recovery_state_only_while_it_recovers() -> None:
    plain = {"version": 1, "leader": -1, "leader_epoch": 7, "controller_epoch": 3, "isr": [2, 1]}
    assert json.loads(encode_state(-1, 7, (2, 1), 3)) == plain
    recovering = encode_state(-1, 7, (2, 1), 3, recovering=True)
    assert json.loads(recovering) == plain | {"leader_recovery_state": 1}


def test_a_topic_is_written_in_version_3_with_its_reassignments_only() -> None:
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


BROKER_V5 = (
    b'{"features":{},"listener_security_protocol_map":{"CLIENT":"PLAINTEXT","INTERNAL":"SSL"},'
    b'"endpoints":["CLIENT://h.example:9092","INTERNAL://[fe80::1%eth0]:9093"],"jmx_port":-1,"port":9092,'
    b'"host":"h.example","version":5,"timestamp":"1600000000000","rack":"r1"}'
)


def test_a_broker_is_written_as_brokers_write_themselves() -> None:
    found = decode_broker("", 1, BROKER_V5, 77, 2)
    both = (Endpoint("CLIENT", "h.example", 9092, 0), Endpoint("INTERNAL", "fe80::1%eth0", 9093, 1))
    assert found == broker(*both, rack="r1")
    assert json.loads(encode_broker(found, timestamp_ms=1_600_000_000_000)) == json.loads(BROKER_V5)
    secure = json.loads(encode_broker(broker(Endpoint("INTERNAL", "h", 1, 3)), timestamp_ms=1))
    assert (secure["host"], secure["port"], "rack" in secure) == (None, -1, False)
