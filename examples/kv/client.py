"""Reads and writes keys: finds the owner of each key with regent's router, and tries again until a deadline."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final, TypeVar

from examples.kv import protocol
from examples.kv.connections import Connections
from examples.kv.options import add_daemons
from examples.kv.protocol import (
    PUT_BYTES_MAX,
    PUT_COUNT_MAX,
    Absent,
    CompareAndPut,
    Entries,
    Found,
    Get,
    Put,
    PutMany,
    Refused,
    Request,
    Response,
    Scan,
    Written,
)
from regent_agent.connection import Address
from regent_agent.protocol import Route
from regent_agent.router import NoOwner, Router, UnknownTable, Unwelcome

TIMEOUT_S: Final = 10.0
"""Longest time of a call, all attempts included."""
ATTEMPT_S_MAX: Final = 2.0
"""Longest wait for one server, which may be frozen."""
PAUSE_S: Final = 0.02
PAUSE_S_MAX: Final = 0.5

R = TypeVar("R", bound=Response)


class Failed(Exception):
    """No server responded before the deadline, or the daemons refuse the secret. The text has the last cause.

    A put may take effect nevertheless.
    """


class Invalid(Exception):
    """The server does not accept the key or the value."""


class Conflict(Exception):
    """The key has another version. ``found``: what it has, None without.

    ``repeated``: an attempt before had no response, so that the version may be the one that this call wrote.
    """

    def __init__(self, found: Found | None, repeated: bool) -> None:
        super().__init__(f"the key has version {found.version if found else 0}")
        self.found = found
        self.repeated = repeated


def first_of(entries: list[tuple[bytes, bytes]], end: bytes) -> list[tuple[bytes, bytes]]:
    """Returns the entries that one request sets: those before the key ``end``, up to the bounds of a request."""
    size = 0
    for count, (key, value) in enumerate(entries[:PUT_COUNT_MAX]):
        size += len(key) + len(value)
        if count and (size > PUT_BYTES_MAX or (end and key >= end)):
            return entries[:count]
    return entries[:PUT_COUNT_MAX]


class Client:
    """Calls servers. A put may be done twice where a response is lost; a compare-and-put is done once at most."""

    def __init__(self, daemons: Sequence[Address], secret: str = "", timeout_s: float = TIMEOUT_S) -> None:
        self._router = Router(daemons, secret)
        self._connections = Connections()
        self._timeout_s = timeout_s

    async def get(self, table: str, key: bytes) -> Found | None:
        """Returns the value of a key with its version, None for a key that does not exist."""
        response, _ = await self.call(table, key, lambda route: Get(route.region, route.token, key))
        return _found(response)

    async def put(self, table: str, key: bytes, value: bytes) -> int:
        """Sets a key; returns its new version once it is durable."""
        response, _ = await self.call(table, key, lambda route: Put(route.region, route.token, key, value))
        return _expect(Written, response).version

    async def put_many(self, table: str, entries: Mapping[bytes, bytes]) -> None:
        """Sets many keys, with one request for each region where bounds allow; returns once all are durable."""
        left = sorted(entries.items())
        while left:
            sent: list[tuple[bytes, bytes]] = []

            def request(route: Route) -> Request:
                nonlocal sent
                sent = first_of(left, route.end)
                return PutMany(route.region, route.token, sent)

            _expect(Written, (await self.call(table, left[0][0], request))[0])
            del left[: len(sent)]

    async def compare_and_put(self, table: str, key: bytes, value: bytes, version: int) -> int:
        """Sets a key that has this version, 0 for a key that does not exist; raises :class:`Conflict`."""
        response, repeated = await self.call(
            table, key, lambda route: CompareAndPut(route.region, route.token, key, value, version)
        )
        if isinstance(response, Found | Absent):
            raise Conflict(_found(response), repeated)
        return _expect(Written, response).version

    async def scan(self, table: str, start: bytes = b"") -> AsyncIterator[tuple[bytes, Found]]:
        """Yields the keys of a table in order, one region after the other; each response is of one moment."""
        while True:
            ends = b""

            def request(route: Route, start: bytes = start) -> Request:
                nonlocal ends
                ends = route.end
                return Scan(route.region, route.token, start)

            page = _expect(Entries, (await self.call(table, start, request))[0])
            for key, value, version in page.entries:
                yield key, Found(value, version)
            if page.more:
                start = page.entries[-1][0] + b"\0"  # the least key behind the last one
            elif ends:
                start = ends
            else:
                return

    async def close(self) -> None:
        """Ends all connections."""
        self._connections.close()
        await self._router.stop()

    async def call(self, table: str, key: bytes, request: Callable[[Route], Request]) -> tuple[Response, bool]:
        """Sends a request to the owner of a key, and tries until a server responds.

        ``request``: makes the request for a route, once for each attempt. Returns the response, and whether an attempt
        before may have been carried out, or may still be. Raises :class:`Failed` and :class:`Invalid`.
        """
        clock = asyncio.get_running_loop().time
        ends_s = clock() + self._timeout_s
        cause, repeated, pause_s = "", False, PAUSE_S
        while (left_s := ends_s - clock()) > 0:
            try:
                route = await self._router.locate(table, key, left_s)
            except Unwelcome as error:
                raise Failed(str(error)) from error
            except NoOwner as error:
                raise Failed(f"{error}; before: {cause or 'no attempt'}") from error
            try:
                async with asyncio.timeout(min(left_s, ATTEMPT_S_MAX)):
                    response = await self._connections.exchange(route.address, request(route))
            except (OSError, EOFError, TimeoutError) as error:
                cause, repeated = f"{route.server} at {route.address}: {type(error).__name__} {error}", True
            else:
                if not isinstance(response, Refused):
                    return response, repeated
                if response.code == protocol.INVALID:
                    raise Invalid(response.text)
                cause, repeated = f"{route.server}: {response.text}", repeated or response.code == protocol.ENDING
            self._router.invalidate(route)
            await asyncio.sleep(min(pause_s * random.uniform(0.5, 1), max(0.0, ends_s - clock())))
            pause_s = min(pause_s * 2, PAUSE_S_MAX)
        raise Failed(f"no response for key {key[:50]!r} of table {table} within {self._timeout_s:g} s: {cause}")


def _found(response: Response) -> Found | None:
    return None if isinstance(response, Absent) else _expect(Found, response)


def _expect(kind: type[R], response: Response) -> R:
    if not isinstance(response, kind):
        raise protocol.Malformed(f"{type(response).__name__} in response, {kind.__name__} is expected")
    return response


def main() -> None:
    """Carries out one command: get, put or scan."""
    parser = argparse.ArgumentParser(prog="python -m examples.kv.client", description="Reads and writes keys.")
    add_daemons(parser)
    parser.add_argument("--table", required=True)
    parser.add_argument("--timeout-s", type=float, default=TIMEOUT_S, help="longest time of the call, in seconds")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("get", help="print the value of a key").add_argument("key")
    put = commands.add_parser("put", help="set a key, print its version")
    put.add_argument("key")
    put.add_argument("value")
    commands.add_parser("scan", help="print all keys with their values").add_argument("start", nargs="?", default="")
    try:
        sys.exit(asyncio.run(_command(parser.parse_args())))
    except (Failed, Invalid, UnknownTable) as error:
        sys.exit(str(error))


async def _command(options: argparse.Namespace) -> int:
    client = Client(options.daemons, options.secret, options.timeout_s)
    try:
        match options.command:
            case "get":
                found = await client.get(options.table, options.key.encode())
                print("no such key" if found is None else found.value.decode(errors="replace"))
                return 1 if found is None else 0
            case "put":
                print(await client.put(options.table, options.key.encode(), options.value.encode()))
            case "scan":
                async for key, entry in client.scan(options.table, options.start.encode()):
                    print(key.decode(errors="replace"), entry.value.decode(errors="replace"))
        return 0
    finally:
        await client.close()


if __name__ == "__main__":
    main()
