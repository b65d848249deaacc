"""What an endpoint frees goes back to the system: connections that are gone, and large requests that were refused."""

from __future__ import annotations

import asyncio
import gc
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from admin.client import Client
from admin.endpoint_tls import EndpointTls
from admin.listener import AdminListener
from admin.streams import Stream
from brokers.security.tls import Tls
from tests.kit.admin_kit import Addresses, FakeController, ScriptedBroker
from tests.kit.admin_requests import PASSED
from tests.kit.certificates import Authority
from tests.kit.polling import eventually

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
    listener = AdminListener("127.0.0.1", 0, Addresses([broker.address]), FakeController(), tls=tls)
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
        await eventually(lambda: alive() == before, listener.limits.frame_timeout_ms / 2_000)


@pytest.mark.parametrize(
    ("kind", "least_mb", "most_mb"), [("returned", 0, CROWD_MB // 5), ("kept", CROWD_MB // 2, 500)]
)
def test_pieces_of_large_requests_are_returned(kind: str, least_mb: int, most_mb: int) -> None:
    command = [sys.executable, "-c", MEASURED, kind, str(CROWD_MB)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert least_mb <= int(done.stdout) <= most_mb
