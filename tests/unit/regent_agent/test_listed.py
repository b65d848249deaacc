"""Lists of regions that stay bytes: what they hold, what they refuse, and how little they take."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regent_agent import codec, protocol
from regent_agent.codec import LENGTH, Malformed, TooMany, decode_in_portions, decode_request, head_of
from regent_agent.listed import PORTION, Listed
from regent_agent.protocol import Owned, Regions, Register
from tests.unit.regent_agent.examples import REQUESTS

NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, (1 << 64) - 1) | st.integers(-40, 300)


def body(request: protocol.Request) -> bytes:
    return codec.encode(request)[LENGTH.size :]


@pytest.mark.parametrize("name", REQUESTS)
def test_all_requests_are_the_same_in_portions(name: str) -> None:
    frame = body(REQUESTS[name])
    found = decode_in_portions(frame)
    if isinstance(found, Register | Regions):
        found = msgspec.structs.replace(found, owned=list(found.owned))
    assert found == decode_request(frame)


@given(owned=st.lists(st.builds(Owned, NUMBERS, NUMBERS), max_size=40), later=st.lists(NUMBERS | st.text(), max_size=3))
def test_a_list_keeps_its_entries_between_fields_of_a_later_version(owned: list[Owned], later: list[object]) -> None:
    entry = ["register", "s1", 5, "a:1", "v", [[one.region, one.token] for one in owned], *later]
    found = decode_in_portions(msgspec.msgpack.encode(entry))
    assert isinstance(found, Register)
    assert isinstance(found.owned, Listed)
    assert (found.server, found.incarnation, found.address, found.software) == ("s1", 5, "a:1", "v")
    assert list(found.owned) == owned
    assert len(found.owned) == len(owned)


@pytest.mark.parametrize("count", [0, 1, 15, 16, PORTION - 1, PORTION, PORTION + 1, 3 * PORTION + 100, 65_536])
def test_a_list_of_any_length_is_cut_into_portions(count: int) -> None:
    owned = [Owned(number, number << 20) for number in range(count)]
    found = decode_in_portions(body(Regions("s1", 5, 1, owned)))
    assert isinstance(found, Regions)
    assert list(found.owned) == owned


def test_entries_of_a_later_version_are_read_without_their_new_fields() -> None:
    frame = msgspec.msgpack.encode(["regions", "s1", 5, 1, [[1, 7, "later"], [2, 8]]])
    found = decode_in_portions(frame)
    assert isinstance(found, Regions)
    assert list(found.owned) == [Owned(1, 7), Owned(2, 8)]


@pytest.mark.parametrize(
    "owned",
    [b"\x91\x01", b"\x91\x92\x01\xa1x", b"\x92\x92\x01\x01", b"\xc0", b"\xdc\x00", b"\x91\x91\x01", b"\xa1x"],
)
def test_a_list_of_anything_else_is_malformed_before_any_entry_is_used(owned: bytes) -> None:
    with pytest.raises(Malformed):
        decode_in_portions(b"\x95\xa7regions\xa1s\x01\x01" + owned)


def test_a_list_beyond_its_bound_is_refused_and_named() -> None:
    frame = b"\x95\xa7regions\xa1s\x01\x01\xdd" + (250_001).to_bytes(4, "big") + b"\x92\x01\x01" * 250_001
    with pytest.raises(TooMany, match="owned: more than the 250000 that a Regions may have there"):
        decode_in_portions(frame)


def test_a_message_of_too_many_fields_makes_no_objects() -> None:
    frame = b"\xdd" + (8_000_000).to_bytes(4, "big") + b"\xa7regions" + b"\x01" * 7_999_999
    tracemalloc.start()
    try:
        with pytest.raises(Malformed, match="more than 64 fields"):
            decode_in_portions(frame)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 64 * 1024


def test_a_list_takes_its_bytes_and_one_portion_of_objects() -> None:
    owned = [Owned(number, (1 << 40) + number) for number in range(100_000)]
    frame = body(Regions("s1", 5, 1, owned))
    tracemalloc.start()
    try:
        found = decode_in_portions(frame)
        assert isinstance(found, Regions)
        assert sum(1 for _ in found.owned) == len(owned)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 256 * 1024


@pytest.mark.parametrize("cut", [0, 1, 8, 9, 12, 20, 30, 4_000])
def test_first_fields_are_read_from_the_first_bytes_alone(cut: int) -> None:
    frame = body(Register("server", 1 << 40, "a:1", "v1", [Owned(1, 1)] * 20_000))
    found = head_of(frame[:cut])
    if cut < 10:
        assert found is None
        return
    assert found is not None
    assert found.kind is Register
    expected = {"server": "server", "incarnation": 1 << 40, "address": "a:1", "software": "v1"}
    assert found.fields.items() <= expected.items()
    assert found.whole == (cut == 4_000)
    if found.whole:
        assert (found.fields, found.entries) == (expected, 20_000)


def test_a_tag_in_a_longer_form_names_its_kind() -> None:
    assert codec.kind_of(b"\x94\xd9\x06follow\x01\x01\x90") is protocol.Follow
    assert codec.kind_of(b"\x94\xa6follow\x01\x01\x90") is protocol.Follow
    assert codec.kind_of(b"\x94\xa6fellow\x01\x01\x90") is None
    assert codec.kind_of(b"\x94\x06") is None


@given(hostile=st.binary(max_size=60))
def test_hostile_bytes_have_a_head_or_none(hostile: bytes) -> None:
    for data in (hostile, b"\x96\xa8register" + hostile, b"\x95\xa7regions\xa1s" + hostile):
        head_of(data)
        codec.kind_of(data)
        try:
            decode_in_portions(data)
        except Malformed:
            continue
