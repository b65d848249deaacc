"""Runs simulated servers in a process of their own: they open and close at once, and report in batches.

``python -m benchmarks.regions.servers PORT COUNT FIRST STORED`` runs until its standard input closes. With STORED they
are those of a catalog with so many regions, and wait for its daemon.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from itertools import count
from typing import Final, TypeVar, cast

import uvloop

from regent_agent import codec, protocol
from regent_agent.protocol import (
    Hello,
    Independent,
    Operations,
    Owned,
    Poll,
    Register,
    Registered,
    Report,
    Request,
    Response,
    Result,
)

AGAIN_S: Final = 0.5
HEAD_BYTES: Final = codec.LENGTH.size
R = TypeVar("R", bound=Response)


class Peer:
    """One connection: a request, then its response."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int) -> Peer:
        """Connects once a listener is there, and sends Hello."""
        while True:
            try:
                peer = cls(*await asyncio.open_connection("127.0.0.1", port))
            except ConnectionRefusedError:
                await asyncio.sleep(AGAIN_S)
            else:
                await peer.send(Hello(protocol.VERSION))
                return peer

    async def send(self, request: Request) -> Response:
        """Sends a request; returns its response."""
        self._writer.write(codec.encode(request))
        [size] = codec.LENGTH.unpack(await self._reader.readexactly(HEAD_BYTES))
        return codec.decode_response(await self._reader.readexactly(size))


class SimulatedServer:
    """A server that does what it is sent, at once."""

    def __init__(self, name: str, port: int, owned: list[Owned] | None = None, features: Sequence[str] = ()) -> None:
        """``owned``: regions that it has already, as the process that the benchmark's catalog names."""
        self._name = name
        self._incarnation = time.time_ns() // 1_000 if owned is None else 1
        self._owned = owned or []
        self._port = port
        self._features = list(features)
        self._results: list[Result] = []
        self._heirs: list[Owned] = []
        """Regions whose data begins in that of others, until the daemon knows that they have their own."""
        self._came = asyncio.Event()

    async def run(self, ready: asyncio.Event) -> None:
        """Registers, and serves until cancelled."""
        polls, reports = await Peer.connect(self._port), await Peer.connect(self._port)
        registered = await self._registered(polls)
        ready.set()
        reporting = asyncio.ensure_future(self._report(reports, registered.epoch))
        taken = 0
        while not reporting.done():
            found = await polls.send(Poll(self._name, self._incarnation, registered.epoch, taken))
            if not isinstance(found, Operations):
                raise RuntimeError(f"{self._name}: {found}")
            taken = found.number
            self._results += [self.done(one) for one in found.operations]
            self._came.set()
        await reporting

    async def _registered(self, peer: Peer) -> Registered:
        """Registers, again and again until a daemon is active."""
        request = Register(self._name, self._incarnation, f"{self._name}:1", owned=self._owned, features=self._features)
        response = await peer.send(request)
        for _ in count():
            if isinstance(response, Registered):
                break
            await asyncio.sleep(AGAIN_S)
            response = await peer.send(request)
        return cast("Registered", response)

    async def _report(self, peer: Peer, epoch: int) -> None:
        while True:
            await self._came.wait()
            self._came.clear()
            results, self._results = self._results, []
            heirs, self._heirs = self._heirs, []  # of these results: the daemon takes no word of an open before it
            for at in range(0, len(results), protocol.RESULTS_MAX):  # the daemon refuses a report of more
                await peer.send(Report(self._name, self._incarnation, epoch, results[at : at + protocol.RESULTS_MAX]))
            if heirs:
                await peer.send(Independent(self._name, self._incarnation, epoch, heirs))

    def done(self, operation: protocol.Operation) -> Result:
        """Does an operation; returns its result."""
        match operation:
            case protocol.Open():
                if operation.sources:
                    self._heirs.append(Owned(operation.region, operation.token))
                return Result(operation.pid, protocol.OPENED, 1)
            case protocol.Close():
                return Result(operation.pid, protocol.CLOSED)
            case _:
                return Result(operation.pid, protocol.DONE)


def owned_by(number: int, servers: int, stored: int) -> list[Owned]:
    """Lists the regions that a stored catalog gives to a server; the first region of all has no owner."""
    return [Owned(one + 1, one + 1) for one in range(number or servers, stored, servers)]


async def main(port: int, servers_count: int, first: int, stored: int) -> None:
    """Runs so many servers until standard input closes."""
    print("starting", flush=True)
    ready = [asyncio.Event() for _ in range(servers_count)]
    owned = [owned_by(number, servers_count, stored) if stored else None for number in range(servers_count)]
    servers = [SimulatedServer(f"s{first + number}", port, owned[number]) for number in range(servers_count)]
    tasks = [asyncio.ensure_future(one.run(event)) for one, event in zip(servers, ready, strict=True)]
    for event in ready:
        await event.wait()
    print("ready", flush=True)
    ended = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
    done, _ = await asyncio.wait([ended, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    uvloop.run(main(*(int(one) for one in sys.argv[1:5])))
