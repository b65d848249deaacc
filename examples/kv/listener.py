"""Serves clients: one request at a time for each connection, many connections side by side."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from examples.kv import protocol
from examples.kv.content import Entry
from examples.kv.protocol import (
    Absent,
    CompareAndPut,
    Entries,
    Found,
    Get,
    Malformed,
    Put,
    PutMany,
    Refused,
    Request,
    Response,
    Scan,
    Written,
)
from examples.kv.service import Conflict, Invalid, KeyValueService, NotOwner, Suspended
from examples.kv.writer import Fenced

CONNECTIONS_MAX: Final = 1_000

logger = logging.getLogger("kv.listener")


class Listener:
    """Accepts connections of clients."""

    def __init__(self, service: KeyValueService) -> None:
        self._service = service
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listens; returns the port, which the system chooses where ``port`` is 0. Raises OSError."""
        self._server = await asyncio.start_server(self._connected, host, port)
        listens: int = self._server.sockets[0].getsockname()[1]
        return listens

    async def stop(self) -> None:
        """Ends all connections."""
        if self._server is not None:
            self._server.close()
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        if len(self._connections) >= CONNECTIONS_MAX:
            logger.warning("connection refused: %d are open; close some, or raise the bound", CONNECTIONS_MAX)
            writer.close()
            return
        self._connections.add(connection)
        try:
            await self._serve(reader, writer)
        except (EOFError, OSError, asyncio.CancelledError):
            pass  # the client is gone, or this server ends; asyncio would log a task that ends as cancelled
        except Malformed as error:
            logger.warning("connection closed: %s sent %s; use a client of this version",
                           writer.get_extra_info("peername"), error)  # fmt: skip
        finally:
            self._connections.discard(connection)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = protocol.decode_request(await protocol.read_frame(reader))
            writer.write(protocol.encode(await self._answer(request)))
            await writer.drain()

    async def _answer(self, request: Request) -> Response:
        try:
            return await self._carry_out(request)
        except NotOwner as error:
            return Refused(protocol.NOT_OWNER, str(error))
        except Suspended as error:
            return Refused(protocol.SUSPENDED, str(error))
        except Invalid as error:
            return Refused(protocol.INVALID, str(error))
        except (Fenced, OSError) as error:
            return Refused(protocol.ENDING, f"this process ends, locate the key again: {error}")

    async def _carry_out(self, request: Request) -> Response:
        service = self._service
        match request:
            case Get(region, token, key):
                return _entry(await service.get(region, token, key))
            case Put(region, token, key, value):
                return Written(await service.put(region, token, key, value))
            case PutMany(region, token, entries):
                return Written(await service.put_many(region, token, entries))
            case CompareAndPut(region, token, key, value, version):
                try:
                    return Written(await service.compare_and_put(region, token, key, value, version))
                except Conflict as conflict:
                    return _entry(conflict.found)
            case Scan(region, token, start, count_max):
                found, more = await service.scan(region, token, start, count_max)
                return Entries([(key, entry.value, entry.sequence) for key, entry in found], more)


def _entry(entry: Entry | None) -> Response:
    return Absent() if entry is None else Found(entry.value, entry.sequence)
