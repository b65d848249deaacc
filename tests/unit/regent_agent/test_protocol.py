"""The bytes of the protocol: golden frames, hostile ones, and versions that know more or fewer fields."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Callable
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regent_agent import protocol
from regent_agent.codec import FRAME_BYTES_MAX, LENGTH, BadFrame, TooMany, decode_request, decode_response, encode
from regent_agent.protocol import Hello, Operation, Operations, Request, Response, Result
from tests.unit.regent_agent.examples import FORMER, GOLDEN, REQUESTS, RESPONSES, golden

FRAMES, OLD = (
    dict(line.split() for line in file.read_text(encoding="utf-8").splitlines()[1:]) for file in (GOLDEN, FORMER)
)
DECODERS: list[Callable[[bytes], Request | Response]] = [decode_request, decode_response]


def body(name: str) -> bytes:
    return bytes.fromhex(FRAMES[name])[LENGTH.size :]


def test_the_frames_are_as_others_speak_them() -> None:
    assert GOLDEN.read_text(encoding="utf-8") == golden()


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_is_decoded(name: str) -> None:
    frame = bytes.fromhex(FRAMES[name])
    assert LENGTH.unpack(frame[: LENGTH.size]) == (len(frame) - LENGTH.size,)
    decoded = decode_request(body(name)) if name in REQUESTS else decode_response(body(name))
    assert decoded == {**REQUESTS, **RESPONSES}[name]


def is_begin(former: object, now: object) -> bool:
    """Checks whether a value is another one, with more fields at the ends of its arrays."""
    if isinstance(former, list) and isinstance(now, list):
        return len(former) <= len(now) and all(map(is_begin, former, now))
    return former == now


@pytest.mark.parametrize("name", OLD)
def test_an_older_side_understands_each_frame_and_is_understood(name: str) -> None:
    """It ignores what is behind the fields that it knows; what it leaves out has its default."""
    former = bytes.fromhex(OLD[name])[LENGTH.size :]
    assert is_begin(msgspec.msgpack.decode(former), msgspec.msgpack.decode(body(name)))
    decoded = decode_request(former) if name in REQUESTS else decode_response(former)
    assert type(decoded) is type({**REQUESTS, **RESPONSES}[name])


def test_each_kind_of_message_has_a_frame() -> None:
    assert {type(message) for message in REQUESTS.values()} == set(get_args(Request))
    assert {type(message) for message in RESPONSES.values()} == set(get_args(Response))
    operations = RESPONSES["operations"]
    assert isinstance(operations, Operations)
    assert {type(operation) for operation in operations.operations} == set(get_args(Operation))


def test_fields_of_a_later_version_are_ignored() -> None:
    for name in FRAMES:
        fields = msgspec.msgpack.decode(body(name))
        longer = msgspec.msgpack.encode([*fields, {"later": [1, b"x"]}, None])
        decoded = decode_request(longer) if name in REQUESTS else decode_response(longer)
        assert decoded == {**REQUESTS, **RESPONSES}[name]


def test_missing_fields_have_their_defaults() -> None:
    assert decode_request(msgspec.msgpack.encode(["hello", 1])) == Hello(1)
    result = ["report", "s1", 5, 3, [[7, "closed"]]]
    assert decode_request(msgspec.msgpack.encode(result)) == protocol.Report("s1", 5, 3, [Result(7, "closed")])


@pytest.mark.parametrize("decode", DECODERS)
@given(hostile=st.binary(max_size=200))
def test_hostile_bytes_are_malformed(decode: Callable[[bytes], object], hostile: bytes) -> None:
    check(decode, hostile)


@pytest.mark.parametrize("decode", DECODERS)
@given(name=st.sampled_from(sorted(FRAMES)), at=st.integers(0, 300), put=st.binary(max_size=6), cut=st.integers(0, 6))
def test_damaged_messages_are_malformed_or_others(
    decode: Callable[[bytes], object], name: str, at: int, put: bytes, cut: int
) -> None:
    whole = body(name)
    check(decode, whole[:at] + put + whole[at + cut :])


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize(
    "hostile",
    [
        b"",
        b"\xdd\xff\xff\xff\xff",  # an array of 4 billion
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x91" * 200_000,
        b"\x92\xa5hello\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x92\xa5hello\xd6\xff\x00\x00\x00\x00",  # a time
        b"\x93\xa5hello\x01\xa1\xff",  # no UTF-8
        b"\x92\xa7changes" + b"\x91" * 100_000,
    ],
)
def test_known_attacks_are_malformed(decode: Callable[[bytes], object], hostile: bytes) -> None:
    check(decode, hostile)


BEYOND = {
    "owned of a Register": (b"\x96\xa8register\xa1s\x01\xa1a\xa0", b"\x92\x01\x01", protocol.OWNED_MAX),
    "owned of a Regions": (b"\x95\xa7regions\xa1s\x01\x01", b"\x92\x01\x01", protocol.OWNED_MAX),
    "results of a Report": (b"\x95\xa6report\xa1s\x01\x01", b"\x92\x01\xa1x", protocol.RESULTS_MAX),
    "tables of a Follow": (b"\x94\xa6follow\x01\x01", b"\xa2ab", protocol.TABLES_MAX),
}


@pytest.mark.parametrize("what", BEYOND)
def test_a_list_beyond_its_bound_is_refused_before_it_becomes_objects(what: str) -> None:
    """A frame as large as the bound, of as many values as possible: its objects would take hundreds of megabytes."""
    head, one, most = BEYOND[what]
    count = (FRAME_BYTES_MAX - len(head) - 5) // len(one)
    hostile = head + b"\xdd" + count.to_bytes(4, "big") + one * count
    assert len(hostile) <= FRAME_BYTES_MAX
    tracemalloc.start()
    try:
        with pytest.raises(TooMany) as refused:
            decode_request(hostile)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    field, _, kind = what.partition(" of a ")
    assert str(refused.value) == f"{field}: more than the {most} that a {kind} may have there"
    assert peak_bytes < 64 * 1024
    short = head + b"\xdd" + most.to_bytes(4, "big") + one * most
    assert encode(decode_request(short))


def test_the_parts_of_all_results_and_the_figures_of_a_load_are_bounded() -> None:
    for tag in (b"\xa6report", b"\xd9\x06report"):
        with pytest.raises(TooMany, match=f"^results: more than the {protocol.PARTS_MAX} parts of logs"):
            decode_request(report_of(protocol.PARTS_MAX + 1, tag=tag))
        with pytest.raises(TooMany, match=f"^results: more than the {protocol.PARTS_MAX} parts of logs"):
            decode_request(report_of(*[40_000] * 7, 10, tag=tag))
    load = {str(number): 1 for number in range(protocol.FIGURES_MAX + 1)}
    with pytest.raises(TooMany, match=f"^load: more than the {protocol.FIGURES_MAX} "):
        decode_request(msgspec.msgpack.encode(["poll", "s1", 5, 3, 0, load]))


def report_of(*parts: int, tag: bytes = b"\xa6report") -> bytes:
    """Returns a report of results with so many parts."""
    results = [[7, "done", 0, "", ["ab"] * one] for one in parts]
    return b"\x95" + tag + b"\xa2s1\x05\x03" + msgspec.msgpack.encode(results)


def peak_bytes_of(body: bytes) -> int:
    tracemalloc.start()
    try:
        decode_request(body)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("results", [1, 10])
def test_the_most_parts_of_a_report_take_no_more_memory_than_the_most_regions(results: int) -> None:
    owned = [protocol.Owned(1 << 40, 1 << 40)] * protocol.OWNED_MAX
    regions = encode(protocol.Register("s1", 1, "a", owned=owned))[4:]
    assert peak_bytes_of(report_of(*[protocol.PARTS_MAX // results] * results)) < peak_bytes_of(regions)


def test_a_report_of_too_many_parts_is_refused_before_it_becomes_objects() -> None:
    hostile = report_of(*[protocol.PARTS_MAX] * 20)
    tracemalloc.start()
    try:
        with pytest.raises(TooMany):
            decode_request(hostile)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 64 * 1024


@pytest.mark.parametrize("tag", [b"\xd9\x08register", b"\xa8\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8"])
def test_a_tag_in_another_form_is_refused_like_any_other(tag: bytes) -> None:
    count = protocol.OWNED_MAX + 1
    with pytest.raises(BadFrame):
        decode_request(b"\x96" + tag + b"\xa1s\x01\xa1a\xa0\xdd" + count.to_bytes(4, "big") + b"\x92\x01\x01" * count)


def test_a_name_beyond_its_bound_is_refused() -> None:
    with pytest.raises(TooMany, match=r"^address: "):
        decode_request(msgspec.msgpack.encode(["register", "s1", 5, "a" * (protocol.NAME_CHARS_MAX + 1)]))


def test_a_message_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(ValueError, match=f"at most {FRAME_BYTES_MAX} are sent"):
        encode(Hello(1, "x" * FRAME_BYTES_MAX))


def check(decode: Callable[[bytes], object], hostile: bytes) -> None:
    with contextlib.suppress(BadFrame):
        decode(hostile)
