"""Tests primitive types and frames against kio, a reference codec, and with malformed bytes."""

from __future__ import annotations

from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import writers

from brokers.wire.frames import FRAMES_MAX, FrameBuffer
from brokers.wire.primitives import Malformed, Reader, compact_nullable_string, compact_string, legacy_string, varint
from tests.kit.wire_kit import quickly


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
    with pytest.raises(Malformed, match="-1 bytes"):
        Reader(b"\xff\xff").legacy_string()
    with pytest.raises(Malformed):
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
    with pytest.raises(Malformed, match=why):
        Reader(data).compact_array(Reader.i32, 4)


def test_a_message_of_too_many_items_is_refused() -> None:
    assert len(Reader(varint(1_001) + bytes(1_000), items_max=1_000).compact_array(Reader.i8, 1)) == 1_000
    with pytest.raises(Malformed, match="more array items"):
        Reader(varint(1_001) + bytes(1_000), items_max=999).compact_array(Reader.i8, 1)
    twice = Reader(2 * (varint(501) + bytes(500)), items_max=999)
    twice.compact_array(Reader.i8, 1)
    with pytest.raises(Malformed, match="more array items"):
        twice.compact_array(Reader.i8, 1)


def test_malformed_tags_and_text_are_refused() -> None:
    with pytest.raises(Malformed, match="tagged fields"):
        Reader(b"\xff\x7f").skip_tags()
    with pytest.raises(Malformed, match="tagged field of"):
        Reader(b"\x01\x00\x7f").skip_tags()
    with pytest.raises(Malformed, match="UTF-8"):
        Reader(b"\x03\xff\xfe").compact_string()
    with pytest.raises(Malformed, match="follow the message"):
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
    with pytest.raises(Malformed, match="at once"):
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
    with pytest.raises(Malformed, match="at most 10"):
        FrameBuffer(10).feed(length)
