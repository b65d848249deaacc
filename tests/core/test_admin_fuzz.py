"""Mutated real requests, noise and half requests at the admin endpoint: nobody else notices, nothing is left behind."""

from __future__ import annotations

import asyncio
import logging
from random import Random

import pytest

from brokers.wire.messages import MESSAGES, request_codec
from brokers.wire.primitives import Malformed, Reader
from brokers.wire.refusals import refusal
from tests.core.admin_kit import Place, echo, place
from tests.core.admin_requests import PASSED, about, create, fetch, produce
from tests.core.wire_kit import write_request

SEEDS = 6
REQUESTS = 120
MUTATIONS_MAX = 4
REAL = 9
"""The first of :func:`real_requests`, which have contents; the others are headers and zeros."""
CLAIMS = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\xff\xff", b"\0", b"\xff" * 9)


def real_requests() -> list[bytes]:
    """Of each kind, in the oldest and the newest version."""
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


async def thrown(p: Place, random: Random, frame: bytes) -> None:
    """One request, whole or in part; waits for an answer or for the end of the connection."""
    client = await p.connect()
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
    async with place(connections_max=REQUESTS + 1) as p:
        p.controller.answer = lambda call: refusal(call.body, 42, "mutated")
        bystander = await p.connect()
        await asyncio.gather(*(thrown(p, random, frame) for frame in frames))
        bystander.send(PASSED)
        assert await bystander.frame() == echo(PASSED)
        assert p.controller.calls, "some of it was understood"
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_requests_that_are_understood_are_understood_the_same_when_written_again(seed: int) -> None:
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
    assert read, "some of it was understood"
