"""Envelopes: Kafka's frame, the seal, and envelopes that are not genuine."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.wire.envelope import (
    Envelope,
    EnvelopeResponse,
    encode_envelope,
    encode_envelope_response,
    read_envelope,
    read_envelope_response,
)
from brokers.wire.primitives import Malformed, Reader
from brokers.wire.versions import Api
from tests.kit.wire_kit import quickly, read_request, read_response, unframe, write_request

SECRET, CHALLENGE, CALL = b"s" * 32, b"c" * 16, b"i" * 16
PLAIN = Envelope(b"a request", "User:alice", "10.0.0.7")


def read(frame: bytes) -> Envelope:
    reader = Reader(frame)
    reader.skip(8)
    return read_envelope(reader)


def sealed(envelope: Envelope = PLAIN, number: int = 1) -> Envelope:
    return envelope.sealed(SECRET, CHALLENGE, CALL, 2, number)


def test_an_envelope_has_kafkas_frame() -> None:
    header, entity = read_request(unframe([encode_envelope(7, PLAIN)]))
    assert (header.request_api_key, header.request_api_version, header.correlation_id) == (Api.ENVELOPE, 0, 7)
    assert entity.request_data == PLAIN.request
    assert entity.client_host_address == bytes((10, 0, 0, 7))
    assert entity.request_principal == b"\0\0" + b"\x05User" + b"\x06alice" + b"\0" + b"\0"


def test_an_envelope_of_kafka_is_read() -> None:
    frame = write_request(Api.ENVELOPE, 0, 7, request_data=b"r", request_principal=None, client_host_address=bytes(16))
    assert read(frame) == Envelope(b"r", "", "::")


def test_a_response_has_kafkas_frame() -> None:
    for response in (EnvelopeResponse(0, b"data"), EnvelopeResponse(41, None), EnvelopeResponse(0, b"")):
        frame = unframe([encode_envelope_response(9, response)])
        correlation, entity = read_response(Api.ENVELOPE, 0, frame)
        assert (correlation, entity.error_code, entity.response_data) == (9, response.error, response.data)
        assert read_envelope_response(frame, 9) == response
        with pytest.raises(Malformed, match="request 9"):
            read_envelope_response(frame, 8)


@quickly
@given(
    request_=st.binary(max_size=200),
    name=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    host=st.ip_addresses().map(str),
    number=st.integers(0, 2**63 - 1),
)
def test_a_sealed_envelope_arrives_as_it_was_sent(request_: bytes, name: str, host: str, number: int) -> None:
    sent = sealed(Envelope(request_, f"User:{name}", host), number)
    found = read(unframe([encode_envelope(1, sent)]))
    assert found == sent
    assert found.genuine(SECRET, CHALLENGE)


def changed(**fields: Any) -> Envelope:
    """Returns the sealed envelope with other fields."""
    made = sealed()
    assert made.seal is not None
    inside = {"request": made.request, "principal": made.principal, "client_host": made.client_host}
    mine = {name: value for name, value in fields.items() if name in inside}
    seal = made.seal._replace(**{name: value for name, value in fields.items() if name not in inside})
    return Envelope(**(inside | mine), seal=seal)


@pytest.mark.parametrize(
    "fields",
    [
        {"request": b"another"},
        {"principal": "User:bob"},
        {"client_host": "10.0.0.8"},
        {"call_id": b"j" * 16},
        {"attempt": 3},
        {"number": 2},
        {"mac": bytes(32)},
        {"principal": "User:alice1", "client_host": ""},
        {"client_host": "", "request": bytes((10, 0, 0, 7)) + PLAIN.request},
    ],
)
def test_an_envelope_with_a_changed_field_is_not_genuine(fields: dict[str, Any]) -> None:
    assert changed().genuine(SECRET, CHALLENGE)
    assert not changed(**fields).genuine(SECRET, CHALLENGE)


def test_another_secret_another_connection_or_no_seal_is_not_genuine() -> None:
    assert not sealed().genuine(b"t" * 32, CHALLENGE)
    assert not sealed().genuine(SECRET, b"d" * 16)
    assert not PLAIN.genuine(SECRET, CHALLENGE)


def test_a_malformed_address_is_left_out_and_the_seal_is_genuine() -> None:
    found = read(unframe([encode_envelope(1, sealed(Envelope(b"r", "User:a", "unknown peer")))]))
    assert found.client_host == ""
    assert found.genuine(SECRET, CHALLENGE)


@quickly
@given(data=st.data())
def test_cut_or_changed_frames_are_malformed_or_not_genuine(data: st.DataObject) -> None:
    frame = bytearray(unframe([encode_envelope(1, sealed())]))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(8, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(frame[: data.draw(st.integers(8, len(frame)))])
    try:
        found = read(cut)
    except Malformed:
        return
    assert not found.genuine(SECRET, CHALLENGE) or found == sealed()
