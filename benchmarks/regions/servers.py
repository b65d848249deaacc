"""Simulated servers in a process of their own: they open and close at once, and report in batches.

``python -m benchmarks.regions.servers PORT COUNT FIRST`` runs until its standard input closes.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Final, TypeVar, cast

import uvloop

from regent_agent import protocol
from regent_agent.protocol import Hello, Operations, Poll, Register, Registered, Report, Request, Response, Result

HEAD_BYTES: Final = protocol.LENGTH.size
R = TypeVar("R", bound=Response)


class Peer:
    """One connection: a request, then its response."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int) -> Peer:
        """Connects and sends Hello."""
        peer = cls(*await asyncio.open_connection("127.0.0.1", port))
        await peer.send(Hello(protocol.VERSION))
        return peer

    async def send(self, request: Request) -> Response:
        """Sends a request; returns its response."""
        self._writer.write(protocol.encode(request))
        [size] = protocol.LENGTH.unpack(await self._reader.readexactly(HEAD_BYTES))
        return protocol.decode_response(await self._reader.readexactly(size))


class SimulatedServer:
    """A server that does what it is sent, at once."""

    def __init__(self, name: str, port: int) -> None:
        self._name = name
        self._incarnation = time.time_ns() // 1_000
        self._port = port
        self._results: list[Result] = []
        self._came = asyncio.Event()

    async def run(self, ready: asyncio.Event) -> None:
        """Registers, and serves until cancelled."""
        polls, reports = await Peer.connect(self._port), await Peer.connect(self._port)
        registered = cast("Registered", await polls.send(Register(self._name, self._incarnation, f"{self._name}:1")))
        ready.set()
        reporting = asyncio.ensure_future(self._report(reports, registered.epoch))
        taken = 0
        while not reporting.done():
            found = await polls.send(Poll(self._name, self._incarnation, registered.epoch, taken))
            if not isinstance(found, Operations):
                raise RuntimeError(f"{self._name}: {found}")
            taken = found.number
            self._results += [_done(one) for one in found.operations]
            self._came.set()
        await reporting

    async def _report(self, peer: Peer, epoch: int) -> None:
        while True:
            await self._came.wait()
            self._came.clear()
            results, self._results = self._results, []
            if results:
                await peer.send(Report(self._name, self._incarnation, epoch, results))


def _done(operation: protocol.Operation) -> Result:
    match operation:
        case protocol.Open():
            return Result(operation.pid, protocol.OPENED, 1)
        case protocol.Close():
            return Result(operation.pid, protocol.CLOSED)
        case protocol.Task():
            return Result(operation.pid, protocol.DONE)


async def main(port: int, count: int, first: int) -> None:
    """Runs so many servers until standard input closes."""
    ready = [asyncio.Event() for _ in range(count)]
    servers = [SimulatedServer(f"s{first + number}", port) for number in range(count)]
    tasks = [asyncio.ensure_future(one.run(event)) for one, event in zip(servers, ready, strict=True)]
    for event in ready:
        await event.wait()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    uvloop.run(main(*(int(one) for one in sys.argv[1:4])))
