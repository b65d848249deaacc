"""kio as the reference codec: reads what the product wrote, writes what it reads, and compares random messages."""

from __future__ import annotations

import dataclasses
import datetime
import uuid
from collections.abc import Iterable, Mapping
from io import BytesIO
from types import NoneType
from typing import Any, get_args, get_origin

from hypothesis import settings
from hypothesis import strategies as st
from kio.index import load_payload_module, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from msgspec import Struct

from brokers.wire.messages import MESSAGES
from brokers.wire.primitives import ZERO_ID
from brokers.wire.versions import Api, Ibp
from state_machines.model.types import NO_VERSION, Assignment, Broker, Endpoint, PartitionRow, PartitionState, Topic

IBPS = [Ibp.parse(text) for text in ("2.7-IV1", "2.8", "3.2", "3.9")]
"""One IBP for each combination of request versions."""
quickly = settings(max_examples=15)


def unframe(parts: Iterable[bytes]) -> bytes:
    """Returns the one frame in written parts, and checks its length."""
    data = b"".join(parts)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return data[4:]


def read_request(frame: bytes) -> tuple[Any, Any]:
    """Reads a request with kio; returns header and entity, and checks that no bytes follow."""
    key, version = int.from_bytes(frame[0:2], "big"), int.from_bytes(frame[2:4], "big")
    schema: Any = load_request_schema(key, version)
    header, start = entity_reader(schema.__header_schema__)(frame, 0)
    entity, size = entity_reader(schema)(frame, start)
    assert start + size == len(frame)
    return header, entity


def request_header(key: int, version: int, correlation: int, client_id: str | None) -> bytes:
    """Writes the header of a request; that of ControlledShutdown v0 has no client id."""
    schema: Any = load_request_schema(key, version).__header_schema__
    names: dict[str, Any] = {"request_api_key": key, "request_api_version": version, "correlation_id": correlation}
    if "client_id" in schema.__dataclass_fields__:
        names["client_id"] = client_id
    return written(schema(**names))


def write_request(key: int, version: int, correlation: int, client_id: str | None = "2", **fields: object) -> bytes:
    """Writes a request without its length."""
    schema: Any = load_request_schema(key, version)
    return request_header(key, version, correlation, client_id) + written(schema(**fields))


def write_response(key: int, version: int, correlation: int, **fields: object) -> bytes:
    """Writes a response without its length."""
    schema: Any = load_response_schema(key, version)
    return written(schema.__header_schema__(correlation_id=correlation)) + written(schema(**fields))


def read_response(key: int, version: int, frame: bytes) -> tuple[int, Any]:
    """Reads a response with kio; returns correlation id and entity, and checks that no bytes follow."""
    schema: Any = load_response_schema(key, version)
    header, start = entity_reader(schema.__header_schema__)(frame, 0)
    entity, size = entity_reader(schema)(frame, start)
    assert start + size == len(frame)
    return header.correlation_id, entity


def part(key: int, version: int, kind: str, *, response: bool = False, **fields: object) -> Any:
    """Returns a nested entity, only with the fields that the version has."""
    schema = getattr(load_payload_module(key, version, EntityType.response if response else EntityType.request), kind)
    return schema(**{name: value for name, value in fields.items() if name in schema.__dataclass_fields__})


def written(entity: Any) -> bytes:
    """Writes an entity of kio's."""
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def to_uuid(topic_id: bytes | None) -> uuid.UUID | None:
    """Returns kio's form of a topic id."""
    return uuid.UUID(bytes=topic_id) if topic_id else None


ids = st.integers(0, 2**31 - 1)
epochs = st.integers(0, 2**31 - 1)
names = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789._-", min_size=1, max_size=249)
replica_lists = st.lists(ids, min_size=1, max_size=5, unique=True).map(tuple)
topic_ids = st.none() | st.binary(min_size=16, max_size=16).filter(any)
endpoints = st.builds(Endpoint, names, names, st.integers(1, 65535), st.integers(0, 3))
live_brokers = st.lists(
    st.builds(Broker, ids, epochs, st.lists(endpoints, max_size=3).map(tuple), st.none() | names),
    max_size=4,
    unique_by=lambda broker: broker.id,
)


@st.composite
def rows(draw: st.DrawFn, topic: int, partition: int) -> PartitionRow:
    """Draws a row that brokers are sent, reassignments and unclean elections included."""
    replicas = draw(replica_lists)
    some = st.lists(st.sampled_from(replicas), unique=True, max_size=len(replicas)).map(tuple)
    return PartitionRow(
        topic,
        partition,
        Assignment(replicas, draw(some), draw(some)),
        draw(st.sampled_from([PartitionState.ONLINE, PartitionState.OFFLINE])),
        draw(st.sampled_from([-1, *replicas])),
        draw(epochs),
        draw(some),
        draw(epochs),
        draw(epochs),
        draw(st.booleans()),
    )


class FakeCluster:
    """A model made of rows, for encoders; some rows are without leadership, or ended."""

    def __init__(self, topics: list[Topic], table: list[PartitionRow], offline: Mapping[int, tuple[int, ...]]) -> None:
        self.epoch = 5
        self.topics = topics
        self.rows = table
        self.brokers: dict[int, Any] = {}
        self.live: frozenset[int] = frozenset()
        self.offline = offline

    def find(self, topic: str, partition: int) -> int | None:
        """Returns None: no topic was recreated."""
        return None

    def offline_replicas(self, i: int) -> tuple[int, ...]:
        return self.offline.get(i, ())

    any_stopped = False
    any_failed = False
    ids_learned = 0

    @property
    def present(self) -> int:
        return len(self.rows)

    def stopped(self, i: int, broker: int) -> bool:
        return False


@st.composite
def clusters(draw: st.DrawFn) -> FakeCluster:
    """Draws up to five topics of up to four partitions each; later partitions of a topic may stand apart."""
    count = draw(st.integers(1, 5))
    topic_names = draw(st.lists(names, min_size=count, max_size=count, unique=True))
    sizes = draw(st.lists(st.integers(0, 4), min_size=count, max_size=count))
    places = [(t, p) for t in range(count) for p in range(sizes[t])]
    table = [draw(rows(t, p)) for t, p in places]
    for extra in draw(st.lists(st.integers(0, count - 1), max_size=2)):
        table.append(draw(rows(extra, sizes[extra])))
        sizes[extra] += 1
    for i in draw(st.lists(st.integers(0, max(0, len(table) - 1)), max_size=2)) if table else []:
        row = table[i]
        state = draw(st.sampled_from([PartitionState.NEW, PartitionState.NON_EXISTENT]))
        table[i] = PartitionRow(row.topic, row.partition, row.assignment, state, version=NO_VERSION)
    topics = [
        Topic(t, topic_names[t], draw(topic_ids), [i for i, row in enumerate(table) if row.topic == t], 0, 1)
        for t in range(count)
    ]
    offline = {
        i: draw(st.lists(st.sampled_from(row.assignment.replicas), unique=True).map(tuple))
        for i, row in enumerate(table)
    }
    return FakeCluster(topics, table, offline)


def one_topic(name: str, topic_id: bytes | None, partitions: int, replicas: int) -> FakeCluster:
    """Returns a model of one topic; lengths of 127 and more need longer varints."""
    members = tuple(range(1, replicas + 1))
    states = [
        PartitionRow(0, p, Assignment(members), PartitionState.ONLINE, 1, 4, members[:2], 2, p)
        for p in range(partitions)
    ]
    return FakeCluster([Topic(0, name, topic_id, range(partitions), 0, 1)], states, {})


many_partitions = st.builds(one_topic, names, topic_ids, st.integers(126, 300), st.just(3))
many_replicas = st.builds(one_topic, names, topic_ids, st.just(1), st.sampled_from([126, 127, 128, 200]))


a_few = settings(max_examples=8)
Place = tuple[Api, int, bool]
"""An API, a version, and whether it is the response."""

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
times = st.integers(-(2**31), 2**31 - 1).map(lambda ms: datetime.timedelta(milliseconds=ms))
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "bytes": st.binary(max_size=200),
    "records": st.binary(max_size=200),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "string": st.text(max_size=200),
    "uuid": st.none() | st.uuids(),
    "error_code": st.sampled_from(list(ErrorCode)),
    "timedelta_i32": times,
    "timedelta_i64": times,
    "datetime_i64": st.none() | st.integers(0, 2**40).map(lambda s: EPOCH + datetime.timedelta(milliseconds=s)),
}


def places() -> list[Place]:
    """Returns every message that has a codec."""
    versions = [(api, v, m) for api, m in MESSAGES.items() for v in range(m.first, m.last + 1)]
    responses = [(api, version, True) for api, version, _ in versions]
    return responses + [(api, version, False) for api, version, message in versions if message.request is not None]


def name_of(place: Place) -> str:
    return f"{place[0].name} v{place[1]} {'response' if place[2] else 'request'}"


def schema_of(place: Place) -> Any:
    api, version, response = place
    return load_response_schema(api, version) if response else load_request_schema(api, version)


def entities(schema: Any) -> st.SearchStrategy[Any]:
    """Returns entities of a kio class, tagged fields set or at their defaults."""
    return st.builds(schema, **{field.name: values(field) for field in dataclasses.fields(schema)})


def values(field: dataclasses.Field[Any]) -> st.SearchStrategy[Any]:
    item, nullable = split(field)
    array = get_origin(item) is tuple
    if array:
        item = get_args(item)[0]
    kind = field.metadata.get("kafka_type")
    found = entities(item) if kind is None else KINDS[kind]
    if array:
        found = st.lists(found, max_size=3).map(tuple)
    tagged = "tag" in field.metadata
    return st.none() | found if nullable and not tagged else found


def split(field: dataclasses.Field[Any]) -> tuple[Any, bool]:
    parts = get_args(field.type)
    if NoneType not in parts:
        return field.type, False
    return next(part for part in parts if part is not NoneType), True


def plain(value: Any) -> Any:
    """Returns a value of kio's in the form of our codecs."""
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // datetime.timedelta(milliseconds=1)
    return value.bytes if hasattr(value, "bytes") else value


def assert_same(entity: Any, struct: Struct) -> bool:
    """Compares the fields that both have; returns whether the struct has all of the entity's fields."""
    complete = True
    for field in dataclasses.fields(entity):
        kind = field.metadata.get("kafka_type", "")
        name = f"{field.name}_ms" if kind.startswith(("timedelta", "datetime")) else field.name
        if not hasattr(struct, name):
            complete = False
            continue
        ours, theirs = getattr(struct, name), getattr(entity, field.name)
        if kind == "" and theirs is not None:
            assert len(ours) == len(theirs), name
            whole = [assert_same(one, other) for one, other in zip(theirs, ours, strict=True)]
            complete = complete and all(whole)
            continue
        if theirs is None and kind in ("uuid", "datetime_i64"):
            theirs = ZERO_ID if kind == "uuid" else -1
        assert ours == (theirs if isinstance(theirs, tuple) else plain(theirs)), name
    return complete
