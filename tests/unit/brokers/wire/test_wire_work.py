"""Costs of reading: counts bound hostile messages, not their length; mutated ones are malformed or read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from brokers.security.scram import ScramRefused, ScramServer
from brokers.wire import kio_messages
from brokers.wire.calls import SERVED, read_call, read_header
from brokers.wire.envelope import read_envelope
from brokers.wire.message_codec import codec
from brokers.wire.messages import MESSAGES
from brokers.wire.primitives import TAGS_MAX, Malformed, Reader, varint
from brokers.wire.sasl import read_auth_bytes, read_mechanism
from brokers.wire.versions import Api
from tests.kit.hostile_kit import CountingReader, Hostile
from tests.kit.message_kit import Place, name_of, places
from tests.unit.admin.test_admin_fuzz import mutated

SIZE = 40_000
SEEDS = 4
TAGS = varint(SIZE // 2) + b"\x63\0" * (SIZE // 2)
HEADER = b"\0\0\0\1" + b"\xff\xff"
"""Correlation id and no client id."""


def cost(read: Callable[[Reader], object], data: bytes) -> CountingReader:
    """Returns the reader after it has read ``data`` or refused it."""
    reader = CountingReader(data)
    with suppress(Malformed):
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
    with pytest.raises(Malformed, match=r"tagged fields|follow|fit"):
        read_envelope(Reader(data))


def test_tagged_fields_are_counted_over_the_whole_message() -> None:
    section = varint(TAGS_MAX // 2) + b"\x63\0" * (TAGS_MAX // 2)
    reader = CountingReader(section * 3)
    reader.skip_tags()
    reader.skip_tags()
    with pytest.raises(Malformed, match="more than 1000 tagged fields"):
        reader.skip_tags()


@pytest.mark.parametrize("read", [read_mechanism, read_auth_bytes])
def test_messages_before_authentication_have_a_handful_of_reads(read: Callable[[Reader], object]) -> None:
    for data in (bytes(SIZE), b"\xff" * SIZE, b"\0\1" * SIZE):
        assert cost(read, data).work <= 10


def test_a_scram_message_longer_than_any_real_one_is_refused_before_it_is_read() -> None:
    with pytest.raises(ScramRefused, match="bytes"):
        ScramServer("SCRAM-SHA-256", lambda _: pytest.fail("looked up"), "nonce").first(b"n,," + b"n=a," * SIZE)
