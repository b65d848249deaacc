"""Runs servers that note when they close, and clients that note when they know the next owner, with one clock.

``python -m benchmarks.regions.split_clients PORT SERVERS CLIENTS`` runs until its standard input ends. For each line of
it, a number of heirs, it prints the waits of all clients as JSON, once all of them know so many.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from functools import partial
from typing import Final

import msgspec
import uvloop

from benchmarks.regions.followers import Follower, Seen
from benchmarks.regions.servers import SimulatedServer
from benchmarks.regions.world import until
from regent_agent import protocol
from regent_agent.protocol import DISCARD, INHERIT, Result, Route

FEATURES: Final = (INHERIT, DISCARD)
ADDRESS: Final = "127.0.9.1"
_routes: Final = msgspec.msgpack.Decoder(list[Route])


class Moments:
    """When regions were closed, by id; the region that an heir's data begins in, by id of the heir."""

    def __init__(self) -> None:
        self.closed_s: dict[int, float] = {}
        self.parents: dict[int, int] = {}


class NotingServer(SimulatedServer):
    """A server that notes when it closes regions."""

    def __init__(self, name: str, port: int, moments: Moments) -> None:
        super().__init__(name, port, features=FEATURES)
        self._moments = moments

    def done(self, operation: protocol.Operation) -> Result:
        """Does an operation; returns its result."""
        match operation:
            case protocol.Close():
                self._moments.closed_s[operation.region] = time.perf_counter()
            case protocol.Open() if operation.sources:
                self._moments.parents[operation.region] = operation.sources[0].region
            case _:
                pass
        return super().done(operation)


class Client(Follower):
    """A client. ``waits_s``: by heir, the time from the close of its parent until the client knew its owner."""

    def __init__(self, moments: Moments) -> None:
        super().__init__(ADDRESS)
        self._moments = moments
        self.waits_s: dict[int, float] = {}

    def take(self, found: Seen) -> None:
        """Notes the waits of heirs whose first owner it learns."""
        super().take(found)
        now_s = time.perf_counter()
        for route in _routes.decode(found.routes):
            parent = self._moments.parents.get(route.region)
            if parent is not None and route.server and route.region not in self.waits_s:
                self.waits_s[route.region] = now_s - self._moments.closed_s[parent]


def _know(clients: list[Client], heirs: int) -> bool:
    return all(len(one.waits_s) >= heirs for one in clients)


async def main(port: int, servers_count: int, clients_count: int) -> None:
    """Runs so many servers and clients until standard input ends."""
    print("starting", flush=True)
    moments = Moments()
    ready = [asyncio.Event() for _ in range(servers_count)]
    servers = [NotingServer(f"s{number}", port, moments) for number in range(servers_count)]
    tasks = [asyncio.ensure_future(one.run(event)) for one, event in zip(servers, ready, strict=True)]
    clients = [Client(moments) for _ in range(clients_count)]
    for event in ready:
        await event.wait()
    tasks += [asyncio.ensure_future(one.run(port)) for one in clients]
    for one in clients:
        await one.ready.wait()
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        await until(partial(_know, clients, int(line)))
        print(json.dumps([wait_s for one in clients for wait_s in one.waits_s.values()]), flush=True)
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    uvloop.run(main(*(int(one) for one in sys.argv[1:4])))
