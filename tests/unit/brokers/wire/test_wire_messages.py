"""Codecs of client messages: every API and version against kio, and against lengths that claim too much."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from admin.routes import OWN
from brokers.wire import kio_messages
from brokers.wire.message_codec import Codec, Field, Layout, codec
from brokers.wire.messages import MESSAGES, request_codec, response_codec
from brokers.wire.messages.cluster import MetadataHead
from brokers.wire.messages.topics import CreateTopicsRequest
from brokers.wire.primitives import BadMessage, Reader
from brokers.wire.versions import Api
from tests.kit.wire import Place, a_few, assert_same, entities, name_of, places, schema_of, written

PLACES = places()
WHOLE = [place for place in PLACES if place[0] is not Api.METADATA]


def codec_of(place: Place) -> Codec[Any]:
    api, version, response = place
    return response_codec(api, version) if response else request_codec(api, version)


def read(place: Place, body: bytes) -> Any:
    reader = Reader(body)
    value = codec_of(place).read(reader)
    reader.end()
    return value


@pytest.mark.parametrize("place", WHOLE, ids=name_of)
@a_few
@given(data=st.data())
def test_messages_of_kio_are_read_and_written_again(place: Place, data: st.DataObject) -> None:
    entity = data.draw(entities(schema_of(place)))
    body = written(entity)
    value = read(place, body)
    complete = assert_same(entity, value)
    assert complete or place[0] in {Api.PRODUCE, Api.FETCH, *OWN}, "calls to the controller are read in full"
    again = codec_of(place).write(value)
    if complete:
        assert again == body
    else:
        assert read(place, again) == value
        assert_same(kio_read(place, again), value)


def kio_read(place: Place, body: bytes) -> Any:
    from kio.serial import entity_reader

    entity, size = entity_reader(schema_of(place))(body, 0)
    assert size == len(body)
    return entity


@pytest.mark.parametrize("version", range(13))
@a_few
@given(data=st.data())
def test_the_head_of_a_metadata_response_ends_where_its_topics_begin(version: int, data: st.DataObject) -> None:
    place = Api.METADATA, version, True
    entity = data.draw(entities(schema_of(place)))
    body = written(entity)
    reader = Reader(body)
    head = codec_of(place).read(reader)
    assert isinstance(head, MetadataHead)
    assert_same(entity, head)
    assert codec_of(place).write(head) == body[: reader.position]


CLAIMS = [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x08"]
CLAIMING = [start * n + claim + bytes(40) for claim in CLAIMS for start in (b"\0", b"\1") for n in range(24)]


@pytest.mark.parametrize("place", PLACES, ids=name_of)
def test_no_claimed_length_costs_more_than_the_frame(place: Place) -> None:
    """At every place of the claim the bytes that are there bound the memory of the reader."""
    codec_of(place)
    tracemalloc.start()
    try:
        for frame in CLAIMING:
            try:
                read(place, frame)
            except BadMessage:
                pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200_000


def test_codecs_are_built_for_all_versions_of_kafka_3_9() -> None:
    assert {api.name: (m.first, m.last) for api, m in MESSAGES.items()} == {
        "PRODUCE": (0, 11),
        "FETCH": (0, 17),
        "METADATA": (0, 12),
        "API_VERSIONS": (0, 4),
        "CREATE_TOPICS": (0, 7),
        "DELETE_TOPICS": (0, 6),
        "CREATE_PARTITIONS": (0, 3),
        "ELECT_LEADERS": (0, 2),
        "ALTER_PARTITION_REASSIGNMENTS": (0, 0),
        "LIST_PARTITION_REASSIGNMENTS": (0, 0),
        "ALTER_USER_SCRAM_CREDENTIALS": (0, 0),
        "UPDATE_FEATURES": (0, 1),
        "DESCRIBE_CLUSTER": (0, 1),
        "SASL_HANDSHAKE": (1, 1),
        "SASL_AUTHENTICATE": (0, 2),
        "LIST_GROUPS": (0, 5),
        "DESCRIBE_CONFIGS": (0, 4),
        "ALTER_CONFIGS": (0, 2),
        "ALTER_REPLICA_LOG_DIRS": (0, 2),
        "DESCRIBE_LOG_DIRS": (0, 4),
        "INCREMENTAL_ALTER_CONFIGS": (0, 1),
        "LIST_TRANSACTIONS": (0, 1),
    }
    with pytest.raises(LookupError, match="API key 19 v8 is not known"):
        kio_messages.layout(Api.CREATE_TOPICS, 8, response=False)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("00000000 00000000", "bytes follow"),
        ("ffffffff 00000000", "topics is null"),
        ("00000001 ffff 00000001 0001 00000000 00000000 00000000", "name is null"),
        ("00000001 0002 c328 00000001 0001 00000000 00000000 00000000", "is not UTF-8"),
    ],
)
def test_a_message_that_kafka_refuses_is_malformed(body: str, why: str) -> None:
    """CreateTopics v0: an array that must be there is null, so is a name; text is not UTF-8; something follows."""
    frame = bytes.fromhex(body) + (b"\0" if why == "bytes follow" else b"")
    with pytest.raises(BadMessage, match=why):
        read((Api.CREATE_TOPICS, 0, False), frame)


def test_a_string_longer_than_kafka_allows_is_malformed() -> None:
    frame = b"\2" + b"\x81\x80\x02" + b"a" * 32_768
    with pytest.raises(BadMessage, match="at most 32767"):
        read((Api.CREATE_TOPICS, 7, False), frame)


def test_unknown_tagged_fields_are_skipped() -> None:
    plain = codec_of((Api.CREATE_TOPICS, 7, False)).write(CreateTopicsRequest((), 5, validate_only=True))
    assert plain[-1:] == b"\0"
    assert read((Api.CREATE_TOPICS, 7, False), plain[:-1] + b"\1\x09\3abc") == CreateTopicsRequest((), 5, True)


def test_a_tagged_field_of_another_length_than_its_own_is_malformed() -> None:
    answer = read((Api.API_VERSIONS, 3, True), bytes.fromhex("0000 01 00000000 01 03 01 01"))
    assert answer.zk_migration_ready
    with pytest.raises(BadMessage, match="tagged field 3"):
        read((Api.API_VERSIONS, 3, True), bytes.fromhex("0000 01 00000000 01 03 02 01 00"))


def test_null_is_not_written_where_a_version_has_none() -> None:
    with pytest.raises(TypeError, match="topics may not be null"):
        codec_of((Api.CREATE_TOPICS, 7, False)).write(CreateTopicsRequest(None, 5))  # type: ignore[arg-type]


OTHER_DEFAULTS = {
    ("PRODUCE", "log_append_time_ms"): -1,
    ("CREATE_TOPICS", "configs"): (),
    ("DESCRIBE_LOG_DIRS", "total_bytes"): 0,
    ("DESCRIBE_LOG_DIRS", "usable_bytes"): 0,
}
"""Defaults that differ from those of kio."""


def structs_of(layout: Layout, struct: type[Struct]) -> Iterator[tuple[Layout, type[Struct]]]:
    """Pairs a layout and the layouts nested in it with the structs that are read and written by them."""
    yield layout, struct
    for info in msgspec.structs.fields(struct):
        field = next((field for field in layout.fields if field.name == info.name), None)
        inner = next(
            (part for part in get_args(info.type) if isinstance(part, type) and issubclass(part, Struct)), None
        )
        if field is not None and inner is not None and isinstance(field.kind, Layout):
            yield from structs_of(field.kind, inner)


@pytest.mark.parametrize("api", MESSAGES, ids=lambda api: api.name)
@pytest.mark.parametrize("response", [False, True])
def test_a_field_that_a_version_lacks_has_kafkas_default(api: Api, response: bool) -> None:
    message = MESSAGES[api]
    target = message.response if response else message.request
    for version in range(message.first, message.last + 1) if target is not None else ():
        assert target is not None
        for layout, struct in structs_of(kio_messages.layout(api, version, response=response), target):
            defaults = {info.name: info.default for info in msgspec.structs.fields(struct) if not info.required}
            for field in layout.fields:
                if field.name in defaults and (field.tag is not None or is_absent_somewhere(api, response, field.name)):
                    wanted = OTHER_DEFAULTS.get((api.name, field.name), field.default)
                    assert defaults[field.name] == wanted, (version, struct, field.name)


def is_absent_somewhere(api: Api, response: bool, name: str) -> bool:
    """Checks whether a version of the message has no field of this name."""
    message = MESSAGES[api]
    versions = range(message.first, message.last + 1)
    return any(name not in names_in(kio_messages.layout(api, v, response=response)) for v in versions)


def names_in(layout: Layout) -> set[str]:
    """Returns the names of all fields, nested ones included."""
    inner = [names_in(field.kind) for field in layout.fields if isinstance(field.kind, Layout)]
    return {field.name for field in layout.fields}.union(*inner)


@pytest.mark.parametrize("kind", ["float64", "uint16"])
def test_unsupported_kinds_are_refused_when_the_codec_is_built(kind: str) -> None:
    layout = Layout("Odd", True, True, (Field("timeout_ms", kind, False, False, None, 0),))
    with pytest.raises(TypeError, match=f"kind {kind}"):
        codec(layout, CreateTopicsRequest)


def test_a_structure_outside_of_an_array_is_refused_when_the_codec_is_built() -> None:
    inner = Layout("Inner", True, True, ())
    layout = Layout("Odd", True, True, (Field("topics", inner, False, False, None, None),))
    with pytest.raises(TypeError, match="outside of an array"):
        codec(layout, CreateTopicsRequest)
