"""Uses kio, imported late and here alone, for rare requests, their responses, and the layouts of messages.

kio's native reader reserves memory for whatever length an array claims, and ends the process where that fails. So kio
parses only responses whose correlation id matches, and never unrequested input (see :mod:`brokers.wire.calls`).

Field names are kio's: those of Kafka's message definitions in snake case, with ``_`` after a name that clashes. A zero
uuid is None; throttle times are timedeltas.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import timedelta
from io import BytesIO
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin

from brokers.wire.message_codec import IMPLICIT_DEFAULTS, Field, Layout
from brokers.wire.primitives import BadMessage, Reader
from brokers.wire.versions import Api

_KINDS: Final = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
    "records": "bytes",
}
"""kio's own kinds and their kinds on the wire."""


def nested(api: Api, version: int, kind: str, **fields: object) -> Any:
    """Returns an entity inside a request of ``api``, by kio's class name, for instance ``MetadataRequestTopic``."""
    from kio.index import load_payload_module
    from kio.static.constants import EntityType

    return getattr(load_payload_module(api, version, EntityType.request), kind)(**fields)


def prepare(apis: Iterable[tuple[Api, int]]) -> None:
    """Imports kio and builds the codecs of these APIs: it takes tenths of a second, too long for an event loop."""
    from kio.index import load_request_schema, load_response_schema
    from kio.serial import entity_reader, entity_writer

    for api, version in apis:
        request: Any = load_request_schema(api, version)
        response: Any = load_response_schema(api, version)
        for schema in (request.__header_schema__, request):
            entity_writer(schema)
        for schema in (response.__header_schema__, response):
            entity_reader(schema)


def encode_request(api: Api, version: int, correlation: int, client_id: str, **fields: object) -> bytes:
    """Returns a framed request; the caller must pass every field."""
    from kio.index import load_request_schema
    from kio.serial import entity_writer

    schema: Any = load_request_schema(api, version)
    names = {"request_api_key": api, "request_api_version": version, "correlation_id": correlation}
    if "client_id" in schema.__header_schema__.__dataclass_fields__:
        names["client_id"] = client_id  # type: ignore[assignment]
    buffer = BytesIO()
    entity_writer(schema.__header_schema__)(buffer, schema.__header_schema__(**names))
    entity_writer(schema)(buffer, schema(**fields))
    frame = buffer.getvalue()
    return len(frame).to_bytes(4, "big") + frame


def decode_response(api: Api, version: int, frame: bytes, correlation: int) -> Any:
    """Returns kio's entity for the response to request ``correlation``; raises :class:`BadMessage`."""
    if (found := Reader(frame).i32()) != correlation:
        raise BadMessage(f"response to request {found} instead of request {correlation}")
    from kio.index import load_response_schema
    from kio.serial import entity_reader
    from kio.serial.errors import SerialError

    schema: Any = load_response_schema(api, version)
    try:
        _, start = entity_reader(schema.__header_schema__)(frame, 0)
        entity, size = entity_reader(schema)(frame, start)
    except (SerialError, ValueError, OverflowError) as error:
        raise BadMessage(f"response to {api.name} v{version} cannot be read: {error!r}") from error
    if start + size != len(frame):
        raise BadMessage(f"{len(frame) - start - size} bytes follow the response to {api.name} v{version}")
    return entity


def layout(api: int, version: int, *, response: bool) -> Layout:
    """Returns the layout of a request or response body; raises LookupError for one that Kafka does not have.

    Names are kio's, except that times are numbers of milliseconds whose name ends in ``_ms``.
    """
    from kio.index import load_request_schema, load_response_schema

    try:
        return _layout(load_response_schema(api, version) if response else load_request_schema(api, version))
    except RuntimeError as error:  # kio's index errors have no better base
        raise LookupError(f"API key {api} v{version} is not known") from error


def _layout(entity: Any) -> Layout:
    fields = tuple(_field(field) for field in dataclasses.fields(entity))
    flexible = bool(entity.__flexible__)
    return Layout(entity.__name__, flexible, flexible, fields)


def _field(field: dataclasses.Field[Any]) -> Field:
    item: Any = field.type
    nullable = get_origin(item) is UnionType
    if nullable:
        item = next(part for part in get_args(item) if part is not NoneType)
    array = get_origin(item) is tuple
    if array:
        item = get_args(item)[0]
    tag = field.metadata.get("tag")
    if dataclasses.is_dataclass(item):
        return Field(field.name, _layout(item), array, nullable, tag, () if array and not nullable else None)
    kafka_type: str = field.metadata["kafka_type"]
    kind = _KINDS.get(kafka_type, kafka_type)
    nullable = nullable and (array or kind in ("string", "bytes"))  # a missing uuid or time is a value of its own
    name = f"{field.name}_ms" if kafka_type.startswith(("timedelta", "datetime")) else field.name
    return Field(name, kind, array, nullable, tag, _default(field.default, kind, array=array, nullable=nullable))


def _default(declared: object, kind: str, *, array: bool, nullable: bool) -> object:
    if declared is dataclasses.MISSING or (declared is None and not nullable):
        return None if nullable else () if array else IMPLICIT_DEFAULTS.get(kind)
    return round(declared.total_seconds() * 1000) if isinstance(declared, timedelta) else declared
