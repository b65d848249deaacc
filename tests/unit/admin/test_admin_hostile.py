"""Hostile clients and many of them: no other client notices, and their memory goes back to the system."""

from __future__ import annotations

import asyncio
import gc
import logging
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from admin.client import Client
from admin.endpoint import AdminListener
from admin.ports import EndpointLimits
from admin.streams import EndpointTls, Stream
from brokers.security.tls import Tls
from brokers.wire.messages import MESSAGES, request_codec
from brokers.wire.primitives import BadMessage, Reader
from brokers.wire.refusals import refusal
from tests.kit.admin import (
    PASSED,
    PATIENT,
    Addresses,
    EndpointWorld,
    FakeController,
    ScriptedBroker,
    about,
    create,
    echo,
    endpoint_world,
    fetch,
    produce,
)
from tests.kit.certificates import Authority
from tests.kit.deadlines import eventually
from tests.kit.wire import write_request

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
            except BadMessage:
                continue
            read += 1
            assert codec.read(Reader(codec.write(value))) == value
    assert read, "some mutated requests can be read"


CROWD_MB = 100
MEASURED = """
import re, sys
from pathlib import Path
from cli.freed_memory import return_freed_memory

def resident_mb():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024

if sys.argv[1] == "returned":
    return_freed_memory()
bytes(16 << 20)
before_mb = resident_mb()
large, small = [], []
for _ in range(int(sys.argv[2]) * 16):
    large.append(b"x" * 65_536)
    small.append(b"x" * 2_000)
del large
print(resident_mb() - before_mb)
"""
"""After a request of 16 MiB, pieces of 64 KiB between small blocks that live on."""


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Only what nothing refers to is freed: the collector comes late where few objects hold much."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive() -> int:
    """Connections of the endpoint that something refers to."""
    return sum(
        isinstance(found, Client | Stream) or (isinstance(found, ssl.SSLObject) and found.server_side)
        for found in gc.get_objects()
    )


@asynccontextmanager
async def endpoint(tmp_path: Path) -> AsyncIterator[tuple[AdminListener, ssl.SSLContext]]:
    authority, broker = Authority(tmp_path), ScriptedBroker()
    await broker.start()
    tls = EndpointTls(Tls(authority.signed("endpoint"), None, authority.file), Tls(None, None, authority.file))
    limits = EndpointLimits(**PATIENT)
    listener = AdminListener("127.0.0.1", 0, Addresses([broker.address]), FakeController(), limits, tls=tls)
    await listener.start()
    try:
        yield listener, ssl.create_default_context(cafile=authority.file)
    finally:
        await listener.stop()
        await broker.stop()


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize(
    "said",
    [b"", PASSED[:-3], (1_000_000).to_bytes(4, "big") + bytes(900_000), bytes(4)],
    ids=["nothing", "a part of a request", "most of a large request", "what is refused"],
)
@pytest.mark.parametrize("gives_way", [False, True], ids=["hangs up", "gives way"])
async def test_a_connection_that_is_gone_leaves_nothing(tmp_path: Path, said: bytes, gives_way: bool) -> None:
    async with endpoint(tmp_path) as (listener, trusting):
        before = alive()
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=trusting)
        await eventually(lambda: len(listener._clients) == 1)
        writer.write(said)
        await eventually(lambda: not listener._clients or listener.buffered_bytes >= len(said) - 1_000)
        if gives_way and listener._clients:
            listener.slots._end(next(iter(listener.slots._unknown)))
        writer.transport.abort()
        await eventually(lambda: alive() == before, 25.0)  # a shutdown of TLS that nobody answers ends after 30 s


@pytest.mark.parametrize(
    ("kind", "least_mb", "most_mb"), [("returned", 0, CROWD_MB // 5), ("kept", CROWD_MB // 2, 500)]
)
def test_pieces_of_large_requests_are_returned(kind: str, least_mb: int, most_mb: int) -> None:
    command = [sys.executable, "-c", MEASURED, kind, str(CROWD_MB)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert least_mb <= int(done.stdout) <= most_mb
