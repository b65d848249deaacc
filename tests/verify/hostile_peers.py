"""Peers that do what no broker and no client does, as a process of its own: ``python -m tests.verify.hostile_peers``.

Everything goes to one port of this machine, from addresses of its loopback network, and ends by itself after a number
of connections and a time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle
from typing import Final

from brokers.wire.envelope import Envelope, encode_envelope
from brokers.wire.primitives import varint
from brokers.wire.sasl import encode_authenticate, encode_handshake
from brokers.wire.versions import Api
from tests.verify.attack import LARGE, Attack
from tests.verify.hostile_region_peers import REGIONS

HOST: Final = "127.0.0.1"
ADDRESSES: Final = [f"127.0.{third}.{fourth}" for third in range(1, 5) for fourth in range(1, 11)]
AT_ONCE_MAX: Final = 2_500
HANDSHAKES_MAX: Final = 100
"""Handshakes that begin at once: where all peers begin together on a slow machine, none ends in time."""
OPENED_MAX: Final = 20_000
SECONDS_MAX: Final = 60.0
PIECE: Final = 262_144
SENT_BYTES: Final = 65_536
"""The kernel takes so much at once, whatever the other side does."""
NICENESS: Final = 10


def _framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def _head(api: int, version: int, *, tags: bytes = b"\0") -> bytes:
    return api.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\x07" + b"\xff\xff" + tags


def _tags(size: int) -> bytes:
    return varint(size // 2) + b"\x63\0" * (size // 2)


def versions() -> bytes:
    return _framed(_head(Api.API_VERSIONS, 0, tags=b""))


def tagged(api: int, version: int, size: int = LARGE) -> Callable[[], bytes]:
    return lambda: _framed(_head(api, version, tags=_tags(size)))


def isr_changes() -> bytes:
    """Makes an AlterPartition of a broker that is not registered, with 490,000 partitions."""
    item = bytes(8) + b"\1\0" + bytes(4) + b"\0"
    count = 490_000
    return _framed(_head(Api.ALTER_PARTITION, 3) + bytes(12) + b"\2" + bytes(16) + varint(count + 1) + item * count)


def topics(count: int = 90_000) -> bytes:
    """Makes a CreateTopics of so many topics without a name."""
    item = b"\1" + bytes(6) + b"\1\1\0"
    body = _head(Api.CREATE_TOPICS, 7) + varint(count + 1) + item * count + (1_000).to_bytes(4, "big") + b"\0\0"
    return _framed(body)


def wrong_seal() -> bytes:
    """Makes a large envelope under another secret."""
    sealed = Envelope(bytes(LARGE), "User:admin", HOST).sealed(b"x" * 32, bytes(16), bytes(16), 0, 1)
    return encode_envelope(2, sealed)


def challenge() -> bytes:
    """Makes the request for a challenge, which an endpoint sends before it seals."""
    return encode_envelope(1, Envelope(b""))


def sasl_wrong() -> bytes:
    return encode_handshake(1, "PLAIN") + encode_authenticate(2, b"\0kafka\0wrong")


def hello() -> bytes:
    """Makes the beginning of a TLS handshake."""
    return bytes.fromhex("16030100c8010000c40303") + bytes(40)


METADATA: Final = _framed(_head(Api.METADATA, 12) + b"\0" + b"\0\0\0")
"""Of all topics."""

BOTH: Final = {
    "silent": Attack(bytes, 2_200),
    "versions, then nothing": Attack(versions, 2_200),
    "many at the brokers' address": Attack(versions, 700, near=True),
    "connect and hang up": Attack(bytes, 60, again=True),
    "16 MiB announced": Attack(lambda: (LARGE).to_bytes(4, "big") + b"x", 200),
    "half of 16 MiB": Attack(lambda: (LARGE).to_bytes(4, "big") + bytes(LARGE // 2), 24),
    "drop by drop": Attack(lambda: (200).to_bytes(4, "big") + bytes(200), 300, drops=True),
    "versions, answers not read": Attack(versions, 100, again=True, deaf=True),
    "countless empty frames": Attack(lambda: bytes(400_000), 20, again=True),
    "noise": Attack(lambda: os.urandom(2_000), 50, again=True),
    "tags in a header, 16 MiB": Attack(tagged(Api.API_VERSIONS, 3), 8, again=True),
    "tags in an envelope, 16 MiB": Attack(tagged(Api.ENVELOPE, 0), 8, again=True),
}
CONTROLLER: Final = BOTH | {
    "tags in an ISR change, 16 MiB": Attack(tagged(Api.ALTER_PARTITION, 3), 8, again=True),
    "490,000 ISR changes": Attack(isr_changes, 8, again=True),
    "wrong seals, 16 MiB": Attack(wrong_seal, 8, again=True, first=challenge),
}
ENDPOINT: Final = BOTH | {
    "tags in CreateTopics, 16 MiB": Attack(tagged(Api.CREATE_TOPICS, 7), 8, again=True),
    "tags in CreateTopics, 4 MiB": Attack(tagged(Api.CREATE_TOPICS, 7, 4_000_000), 8, again=True),
    "90,000 topics without a name": Attack(topics, 4, again=True),
    "metadata, answers not read": Attack(lambda: METADATA * 20, 100, again=True, deaf=True),
}
SECURED: Final = {
    "TLS without a handshake": Attack(bytes, 2_200, handshake=False),
    "half of a TLS handshake": Attack(hello, 1_000, again=True, handshake=False),
    "no TLS": Attack(versions, 50, again=True, handshake=False),
    "TLS handshakes without end": Attack(bytes, 40, again=True),
    "through TLS, then nothing": Attack(bytes, 300),
    "versions before authentication": Attack(versions, 300),
    "wrong passwords": Attack(sasl_wrong, 40, again=True),
    "16 MiB before authentication": Attack(tagged(Api.SASL_HANDSHAKE, 1), 20, again=True),
}
ATTACKS: Final = CONTROLLER | ENDPOINT | SECURED | REGIONS


def frames(said: bytes) -> int:
    """Counts the whole requests in bytes."""
    found = start = 0
    while start + 4 <= len(said):
        size = int.from_bytes(said[start : start + 4], "big", signed=True)
        if not 0 <= size <= len(said) - start - 4:
            break
        found, start = found + 1, start + 4 + size
    return found


def done_by(attack: Attack) -> list[str]:
    """Returns the counters that an attack must raise; a large request may be refused before all of it is sent."""
    said = attack.said()
    whole = frames(said) and len(said) <= SENT_BYTES and not attack.drops
    return ["connected", *["bytes"] * bool(said), *["frames"] * bool(whole)]


class Peers:
    """Makes all connections of one attack, and counts their ends."""

    def __init__(self, attack: Attack, port: int, tls: ssl.SSLContext | None) -> None:
        self._attack = attack
        self._port = port
        self._tls = tls if attack.handshake else None
        self._said = attack.said()
        self._frames = frames(self._said)
        self._sources = cycle([HOST] if attack.near else ADDRESSES)
        self.counts: Counter[str] = Counter()
        self._opening = asyncio.Semaphore(HANDSHAKES_MAX if self._tls else AT_ONCE_MAX)
        self._until: asyncio.Timeout | None = None
        self._seconds = 0.0

    async def run(self, seconds: float) -> None:
        """Keeps ``at_once`` connections open until ``seconds`` after the first of them is connected."""
        self._seconds = seconds
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS_MAX) as self._until:
                await asyncio.gather(*(self._peer() for _ in range(min(self._attack.at_once, AT_ONCE_MAX))))

    async def _peer(self) -> None:
        while self.counts["opened"] < OPENED_MAX:
            try:
                await self._one()
            except (OSError, EOFError):
                self.counts["ended by the other side"] += 1
            await asyncio.sleep(0.05)

    async def _one(self) -> None:
        self.counts["opened"] += 1
        async with self._opening:
            reader, writer = await asyncio.open_connection(
                HOST, self._port, ssl=self._tls, local_addr=(next(self._sources), 0), limit=PIECE
            )
        self._connected()
        try:
            await self._begin(reader, writer)
            await self._say(writer)
            while self._attack.again and self._said:
                if not self._attack.deaf:
                    await self._read_response(reader)
                await self._begin(reader, writer)
                await self._say(writer)
            if not self._attack.again:
                while await self._read_response(reader):
                    pass
        finally:
            writer.transport.abort()

    def _connected(self) -> None:
        self.counts["connected"] += 1
        if self.counts["connected"] == 1 and self._until is not None:
            self._until.reschedule(asyncio.get_running_loop().time() + self._seconds)

    async def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if first := self._attack.first():
            writer.write(first)
            await self._read_response(reader)
            self.counts["frames"] += frames(first)

    async def _read_response(self, reader: asyncio.StreamReader) -> bytes:
        if not (data := await reader.read(PIECE)):
            raise EOFError
        self.counts["answers"] += 1
        return data

    async def _say(self, writer: asyncio.StreamWriter) -> None:
        step = 1 if self._attack.drops else PIECE
        for start in range(0, len(self._said), step):
            writer.write(self._said[start : start + step])
            await writer.drain()
            await asyncio.sleep(0)  # an end of the connection is noticed then, also with TLS
            self.counts["bytes"] += min(step, len(self._said) - start)
            if self._attack.drops:
                await asyncio.sleep(0.1)
        self.counts["frames"] += self._frames


def main() -> None:
    """Prints the counts as JSON."""
    wanted = argparse.ArgumentParser()
    wanted.add_argument("attack", choices=ATTACKS)
    wanted.add_argument("port", type=int)
    wanted.add_argument("seconds", type=float)
    wanted.add_argument("--tls", action="store_true")
    chosen = wanted.parse_args()
    os.nice(NICENESS)
    tls = None
    if chosen.tls:
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    peers = Peers(ATTACKS[chosen.attack], chosen.port, tls)
    asyncio.run(peers.run(chosen.seconds))
    print(json.dumps(peers.counts))


if __name__ == "__main__":
    main()
