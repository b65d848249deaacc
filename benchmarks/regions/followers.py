"""Runs clients that follow routes, in a process of their own: ``python -m benchmarks.regions.followers PORT COUNT``.

For each line of standard input, the number of a change, it prints a line once all of them have that change.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec
import uvloop

from benchmarks.regions.servers import HEAD_BYTES
from benchmarks.regions.world import until
from regent_agent import codec, protocol
from regent_agent.protocol import Follow, Hello, Message

ADDRESS: Final = 250
"""Followers of one address."""


class Seen(Message, frozen=True, tag="changes"):
    """A response whose routes are not made: this process measures another one."""

    epoch: int
    change: int
    routes: msgspec.Raw
    reset: bool = False


_seen: msgspec.msgpack.Decoder[Seen] = msgspec.msgpack.Decoder(Seen)


class Follower:
    """One client. ``change``: the latest that it has."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.change = 0
        self.responses = 0
        self.ready = asyncio.Event()

    async def run(self, port: int) -> None:
        """Follows until cancelled."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(self._address, 0))
        writer.write(codec.encode(Hello(protocol.VERSION)))
        await self._frame(reader)
        epoch = 0
        while True:
            writer.write(codec.encode(Follow(epoch, self.change)))
            if epoch:
                self.ready.set()
            found = _seen.decode(await self._frame(reader))
            epoch, self.change = found.epoch, found.change
            self.take(found)

    def take(self, found: Seen) -> None:
        """Takes a response."""
        self.responses += 1

    @staticmethod
    async def _frame(reader: asyncio.StreamReader) -> bytes:
        [size] = codec.LENGTH.unpack(await reader.readexactly(HEAD_BYTES))
        return await reader.readexactly(size)


def _have(followers: Sequence[Follower], change: int) -> bool:
    return all(one.change >= change for one in followers)


async def main(port: int, count: int) -> None:
    """Runs so many followers until standard input ends."""
    print("starting", flush=True)
    followers = [Follower(f"127.0.9.{1 + number // ADDRESS}") for number in range(count)]
    tasks = [asyncio.ensure_future(one.run(port)) for one in followers]
    for one in followers:
        await one.ready.wait()
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        await until(partial(_have, followers, int(line)))
        print(sum(one.responses for one in followers), flush=True)
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    uvloop.run(main(*(int(one) for one in sys.argv[1:3])))
