"""Keeps a client's connections: each carries one request at a time, and is used again after a response."""

from __future__ import annotations

import asyncio

from examples.kv.protocol import Request, Response, decode_response, encode, read_frame


class Connections:
    """Opens as many connections as requests are under way. A connection without a response is closed."""

    def __init__(self) -> None:
        self._idle: dict[str, list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]] = {}

    async def exchange(self, address: str, request: Request) -> Response:
        """Sends a request and returns the response; raises OSError, EOFError and Malformed."""
        idle = self._idle.setdefault(address, [])
        while idle and idle[-1][0].at_eof():  # its server has ended since
            idle.pop()[1].close()
        host, _, port = address.rpartition(":")
        reader, writer = idle.pop() if idle else await asyncio.open_connection(host, int(port))
        try:
            writer.write(encode(request))
            await writer.drain()
            response = decode_response(await read_frame(reader))
        except BaseException:
            writer.close()
            raise
        idle.append((reader, writer))
        return response

    def close(self) -> None:
        """Ends all connections that are idle."""
        for idle in self._idle.values():
            for _, writer in idle:
                writer.close()
        self._idle.clear()
