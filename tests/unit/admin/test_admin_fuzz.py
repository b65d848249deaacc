"""Mutated real requests, noise and half requests at the admin endpoint: no other client notices."""

from __future__ import annotations

import asyncio
import logging
from random import Random

import pytest

from brokers.wire.messages import MESSAGES, request_codec
from brokers.wire.primitives import Malformed, Reader
from brokers.wire.refusals import refusal
from tests.kit.admin_kit import EndpointWorld, echo, endpoint_world
from tests.kit.admin_requests import PASSED, about, create, fetch, produce
from tests.kit.wire_kit import write_request

SEEDS = 6
REQUESTS = 120
MUTATIONS_MAX = 4
REAL = 9
"""The first of :func:`real_requests`, which have contents; the others are headers and zeros."""
CLAIMS = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\xff\xff", b"\0", b"\xff" * 9)


def real_requests() -> list[bytes]:
    """Writes one of each kind, in the oldest and the newest version."""
    made = [PASSED]
    for key, fields in ((19, create), (1, fetch)):
        last = next(m.last for api, m in MESSAGES.items() if api == key)
        made += [write_request(key, v, 9, "me", **fields(v)) for v in (0, last)]
    made += [write_request(0, v, 9, "me", **produce(v, acks=1)) for v in (0, 11)]
    made += [write_request(44, v, 9, "me", **about(44, v, (2, "topic"), (4, "1"))) for v in (0, 1)]
    for api, message in MESSAGES.items():
        made += [api.to_bytes(2, "big") + v.to_bytes(2, "big") + bytes(30) for v in range(message.last + 2)]
    return made


def mutated(random: Random, frame: bytes) -> bytes:
    data = bytearray(frame)
    for _ in range(random.randint(0, MUTATIONS_MAX)):
        at = random.randrange(4, len(data) + 1)
        match random.randrange(5):
            case 0:
                data[at : at + 1] = random.randbytes(1)
            case 1:
                claim = random.choice(CLAIMS)
                data[at : at + len(claim)] = claim
            case 2:
                del data[at : at + random.randint(1, 8)]
            case 3:
                data[at:at] = random.randbytes(random.randint(1, 8))
            case 4:
                data[at:at] = data[max(0, at - 12) : at]
    return bytes(data)


async def throw(w: EndpointWorld, random: Random, frame: bytes) -> None:
    """Sends a request or a part of it, and waits for a response or for the end of the connection."""
    client = await w.connect()
    framed = len(frame).to_bytes(4, "big") + frame
    whole = random.random() < 0.8
    client.writer.write(framed if whole else framed[: random.randrange(len(framed))])
    if whole:
        try:
            await client.frame()
        except (OSError, EOFError):
            pass
    client.writer.close()


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_no_request_breaks_more_than_its_own_connection(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    random, requests = Random(seed), real_requests()
    kinds = requests[:REAL] * 30 + requests[REAL:]
    frames = [mutated(random, random.choice(kinds)) for _ in range(REQUESTS)]
    async with endpoint_world(connections_max=REQUESTS + 1) as w:
        w.controller.respond = lambda call: refusal(call.body, 42, "mutated")
        bystander = await w.connect()
        await asyncio.gather(*(throw(w, random, frame) for frame in frames))
        assert await bystander.exchange(PASSED) == echo(PASSED)
        assert w.controller.calls, "some mutated requests can be read"
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_mutated_request_that_can_be_read_stays_the_same_when_written_again(seed: int) -> None:
    random, read = Random(seed), 0
    for frame in real_requests()[1:6]:
        for _ in range(REQUESTS):
            version = int.from_bytes(frame[2:4], "big")
            codec = request_codec(next(api for api in MESSAGES if api == frame[1]), version)
            body = mutated(random, frame)[13 if version >= 5 else 12 :]
            try:
                value = codec.read(Reader(body))
            except Malformed:
                continue
            read += 1
            assert codec.read(Reader(codec.write(value))) == value
    assert read, "some mutated requests can be read"
