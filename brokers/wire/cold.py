"""kio's only door, opened late: requests that are rare and answers that we asked for.

kio's native reader reserves memory for whatever length an array claims and ends the process where that fails. So
only answers whose correlation id matches reach it, never bytes that nobody asked for (see :mod:`brokers.wire.calls`).
Field names are kio's: those of Kafka's message definitions in snake case, ``_`` after a name that clashes; a zero
uuid is None; throttle times are timedeltas.
"""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from typing import Any

from brokers.wire.primitives import Malformed, Reader
from brokers.wire.versions import Api


def nested(api: Api, version: int, kind: str, **fields: object) -> Any:
    """An entity inside a request of ``api``, by kio's class name, for instance ``MetadataRequestTopic``."""
    from kio.index import load_payload_module
    from kio.static.constants import EntityType

    return getattr(load_payload_module(api, version, EntityType.request), kind)(**fields)


def prepare(apis: Iterable[tuple[Api, int]]) -> None:
    """Imports kio and builds what writes and reads these APIs: tenths of a second that a loop should not spend."""
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
    """A framed request; every field must be given."""
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
    """kio's entity for the answer to request ``correlation``; raises :class:`Malformed`."""
    if (answered := Reader(frame).i32()) != correlation:
        raise Malformed(f"answer to request {answered} where {correlation} was asked")
    from kio.index import load_response_schema
    from kio.serial import entity_reader
    from kio.serial.errors import SerialError

    schema: Any = load_response_schema(api, version)
    try:
        _, start = entity_reader(schema.__header_schema__)(frame, 0)
        entity, size = entity_reader(schema)(frame, start)
    except (SerialError, ValueError, OverflowError) as error:
        raise Malformed(f"answer to {api.name} v{version} cannot be read: {error!r}") from error
    if start + size != len(frame):
        raise Malformed(f"{len(frame) - start - size} bytes follow the answer to {api.name} v{version}")
    return entity
