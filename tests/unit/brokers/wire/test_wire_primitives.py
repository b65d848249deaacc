"""Primitive types and frames against kio, and what hostile messages cost to read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import writers

from brokers.security.scram import ScramRefused, ScramServer
from brokers.wire import kio_messages
from brokers.wire.calls import SERVED, read_call, read_header
from brokers.wire.envelope import read_envelope
from brokers.wire.frames import FRAMES_MAX, FrameBuffer
from brokers.wire.message_codec import codec
from brokers.wire.messages import MESSAGES
from brokers.wire.primitives import (
    TAGS_MAX,
    BadMessage,
    Reader,
    compact_nullable_string,
    compact_string,
    legacy_string,
    varint,
)
from brokers.wire.sasl import read_auth_bytes, read_mechanism
from brokers.wire.versions import Api
from tests.kit.hostile import CountingReader, Hostile
from tests.kit.wire import Place, name_of, places, quickly
from tests.unit.admin.test_admin_hostile import mutated


def written_by_kio(write: object, value: object) -> bytes:
    buffer = BytesIO()
    write(buffer, value)  # type: ignore[operator]  # kio's writers have no common type
    return buffer.getvalue()


@quickly
@given(st.integers(0, 2**31 - 1) | st.sampled_from([0, 127, 128, 16383, 16384]))
def test_varints_are_written_and_read_as_kio_does(value: int) -> None:
    assert varint(value) == written_by_kio(writers.write_unsigned_varint, value)
    assert Reader(varint(value)).varint() == value


@quickly
@given(st.text(max_size=300))
def test_strings_are_written_and_read_as_kio_does(text: str) -> None:
    assert compact_string(text) == written_by_kio(writers.write_compact_string, text)
    assert legacy_string(text) == written_by_kio(writers.write_legacy_string, text)
    assert Reader(compact_string(text)).compact_string() == text
    assert Reader(legacy_string(text)).legacy_string() == text
    assert Reader(legacy_string(text)).legacy_nullable_string() == text


def test_null_strings_are_read_where_they_are_allowed() -> None:
    assert compact_nullable_string(None) == written_by_kio(writers.write_nullable_compact_string, None)
    assert compact_nullable_string("r1") == compact_string("r1")
    assert Reader(b"\xff\xff").legacy_nullable_string() is None
    with pytest.raises(BadMessage, match="-1 bytes"):
        Reader(b"\xff\xff").legacy_string()
    with pytest.raises(BadMessage):
        Reader(b"\0").compact_string()


def test_tagged_fields_are_skipped() -> None:
    reader = Reader(varint(2) + varint(0) + varint(3) + b"abc" + varint(900) + varint(0) + b"rest")
    reader.skip_tags()
    assert reader.position == len(reader.data) - 4


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(b"\xff\xff\xff\xff\x0f", "does not fit", id="count_of_32_bits"),
        pytest.param(b"\xff\xff\xff\xff\xff\x01", "longer than 5 bytes", id="varint_of_6_bytes"),
        pytest.param(b"\x00", "does not fit", id="null"),
        pytest.param(b"\x03abc", "does not fit", id="2_items_in_3_bytes"),
        pytest.param(b"", "does not fit", id="empty"),
    ],
)
def test_an_array_that_claims_more_than_is_there_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(BadMessage, match=why):
        Reader(data).compact_array(Reader.i32, 4)


def test_a_message_of_too_many_items_is_refused() -> None:
    assert len(Reader(varint(1_001) + bytes(1_000), items_max=1_000).compact_array(Reader.i8, 1)) == 1_000
    with pytest.raises(BadMessage, match="more array items"):
        Reader(varint(1_001) + bytes(1_000), items_max=999).compact_array(Reader.i8, 1)
    twice = Reader(2 * (varint(501) + bytes(500)), items_max=999)
    twice.compact_array(Reader.i8, 1)
    with pytest.raises(BadMessage, match="more array items"):
        twice.compact_array(Reader.i8, 1)


def test_malformed_tags_and_text_are_refused() -> None:
    with pytest.raises(BadMessage, match="tagged fields"):
        Reader(b"\xff\x7f").skip_tags()
    with pytest.raises(BadMessage, match="tagged field of"):
        Reader(b"\x01\x00\x7f").skip_tags()
    with pytest.raises(BadMessage, match="UTF-8"):
        Reader(b"\x03\xff\xfe").compact_string()
    with pytest.raises(BadMessage, match="follow the message"):
        Reader(b"x").end()


@quickly
@given(st.lists(st.binary(max_size=50), max_size=8), st.lists(st.integers(1, 40), min_size=1))
def test_frames_are_whole_however_the_stream_is_cut(frames: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    buffer, found, position, cut = FrameBuffer(50), [], 0, 0
    while position < len(stream):
        size = cuts[cut % len(cuts)]
        found += buffer.feed(stream[position : position + size])
        position, cut = position + size, cut + 1
    assert found == frames
    assert not buffer.partial
    assert buffer.held == 0


def test_a_partial_frame_counts_its_received_bytes() -> None:
    buffer = FrameBuffer(1_000)
    assert buffer.feed(b"\0\0") == []
    assert (buffer.partial, buffer.held) == (True, 2)
    assert buffer.feed(b"\x01\x00abc") == []
    assert (buffer.partial, buffer.held) == (True, 7)


def test_too_many_frames_at_once_are_refused() -> None:
    # four zero bytes are an empty frame
    assert len(FrameBuffer(10).feed(bytes(4 * FRAMES_MAX))) == FRAMES_MAX
    with pytest.raises(BadMessage, match="at once"):
        FrameBuffer(10).feed(bytes(4 * FRAMES_MAX + 4))


@pytest.mark.parametrize(
    "length",
    [
        pytest.param(b"\x7f\xff\xff\xff", id="largest_int32"),
        pytest.param(b"\xff\xff\xff\xff", id="minus_one"),
        pytest.param(b"GET ", id="http"),
        pytest.param(b"\x16\3\1\2", id="tls"),
        pytest.param(b"\0\0\0\x0b", id="one_over_limit"),
    ],
)
def test_a_length_outside_of_the_limit_is_refused_before_its_bytes_arrive(length: bytes) -> None:
    assert FrameBuffer(10).feed(b"\0\0\0\x0a" + bytes(10)) == [bytes(10)]
    with pytest.raises(BadMessage, match="at most 10"):
        FrameBuffer(10).feed(length)


SIZE = 40_000
SEEDS = 4
TAGS = varint(SIZE // 2) + b"\x63\0" * (SIZE // 2)
HEADER = b"\0\0\0\1" + b"\xff\xff"
"""Correlation id and no client id."""


def cost(read: Callable[[Reader], object], data: bytes) -> CountingReader:
    """Returns the reader after it has read ``data`` or refused it."""
    reader = CountingReader(data)
    with suppress(BadMessage):
        read(reader)
    return reader


@pytest.mark.parametrize("place", places(), ids=name_of)
def test_every_read_of_a_clients_message_belongs_to_a_counted_item(place: Place) -> None:
    api, version, response = place
    message = MESSAGES[api]
    layout = kio_messages.layout(api, version, response=response)
    if response and api is Api.METADATA:
        layout = layout.head("topics")
    target = message.response if response else message.request
    assert target is not None
    read = codec(layout, target).read
    for seed in range(SEEDS):
        random = Random(seed)
        data = Hostile(random, SIZE).message(layout)
        assert cost(read, data).bounded()
        assert cost(read, mutated(random, bytes(4) + data)[4:]).bounded()


@pytest.mark.parametrize("api", SERVED)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_read_of_a_brokers_call_belongs_to_a_counted_item(api: Api, seed: int) -> None:
    first, last = SERVED[api]
    for version in range(first, last + 1):
        layout = kio_messages.layout(api, version, response=False)
        random = Random(seed)
        head = api.to_bytes(2, "big") + version.to_bytes(2, "big") + HEADER
        for header_tags in (b"\0", TAGS) if layout.flexible else (b"",):
            data = head + header_tags + Hostile(random, SIZE).message(layout)
            assert cost(_call, data).bounded()
            assert cost(_call, head + mutated(random, bytes(4) + data)[4 + len(head) :]).bounded()


def _call(reader: Reader) -> object:
    return read_call(read_header(reader), reader)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff" + TAGS,
        b"\xff\xff\0" + b"\1\1\1" + TAGS,
        b"\xff\xff\0" + b"\1" + varint(len(TAGS) + 6) + b"\0\0\2u\2n\0" + TAGS + b"\1\0",
    ],
    ids=["in its header", "beside its seal", "in its principal"],
)
def test_an_envelope_with_countless_tagged_fields_is_refused_before_they_are_read(data: bytes) -> None:
    assert cost(read_envelope, data).work < 100
    with pytest.raises(BadMessage, match=r"tagged fields|follow|fit"):
        read_envelope(Reader(data))


def test_tagged_fields_are_counted_over_the_whole_message() -> None:
    section = varint(TAGS_MAX // 2) + b"\x63\0" * (TAGS_MAX // 2)
    reader = CountingReader(section * 3)
    reader.skip_tags()
    reader.skip_tags()
    with pytest.raises(BadMessage, match="more than 1000 tagged fields"):
        reader.skip_tags()


@pytest.mark.parametrize("read", [read_mechanism, read_auth_bytes])
def test_messages_before_authentication_have_a_handful_of_reads(read: Callable[[Reader], object]) -> None:
    for data in (bytes(SIZE), b"\xff" * SIZE, b"\0\1" * SIZE):
        assert cost(read, data).work <= 10


def test_a_scram_message_longer_than_any_real_one_is_refused_before_it_is_read() -> None:
    with pytest.raises(ScramRefused, match="bytes"):
        ScramServer("SCRAM-SHA-256", lambda _: pytest.fail("looked up"), "nonce").first(b"n,," + b"n=a," * SIZE)
