"""A proxy before a daemon's ZooKeeper that knows requests from each other: it swallows the reply of a chosen write."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

from tests.zookeeper.proxy import Proxy

MULTI = 14
_XID_AND_TYPE = struct.Struct(">ii")
_REPLY = struct.Struct(">iqi")


class LossyProxy(Proxy):
    """:meth:`lose` arms it: the reply to the next multi that names the text is not delivered, the connection is cut.

    ``lost`` counts replies that were swallowed although the server had applied the multi.
    """

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.lost = 0
        self._wanted: bytes | None = None
        self._awaited: int | None = None

    def lose(self, names: str) -> None:
        self._wanted = names.encode()

    @property
    def armed(self) -> bool:
        """Whether no such multi came by yet."""
        return self._wanted is not None or self._awaited is not None

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._frames(reader, writer, self._sent)

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._frames(reader, writer, self._answered)

    async def _frames(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: Callable[[bytes], bool]
    ) -> None:
        try:
            while True:
                head = await reader.readexactly(4)
                body = await reader.readexactly(int.from_bytes(head, "big"))
                await self._flowing.wait()
                if not passes(body):
                    self.cut()
                    return
                writer.write(head + body)
                await writer.drain()
        except asyncio.IncompleteReadError:
            writer.transport.abort()

    def _sent(self, body: bytes) -> bool:
        xid, kind = _XID_AND_TYPE.unpack_from(body)
        if self._wanted is not None and kind == MULTI and self._wanted in body:
            self._wanted, self._awaited = None, xid
        return True

    def _answered(self, body: bytes) -> bool:
        if self._awaited is None or len(body) < _REPLY.size:
            return True
        xid, _, error = _REPLY.unpack_from(body)
        if xid != self._awaited:
            return True
        self._awaited = None
        self.lost += error == 0
        return False
