"""Random messages of every API in kio's form, and their comparison with ours."""

from __future__ import annotations

import dataclasses
import datetime
from types import NoneType
from typing import Any, get_args, get_origin

from hypothesis import settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from msgspec import Struct

from brokers.wire.messages import MESSAGES
from brokers.wire.primitives import ZERO_ID
from brokers.wire.versions import Api

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
