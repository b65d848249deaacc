"""Puts a proxy before a daemon's ZooKeeper that acts at a chosen write."""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.kit.cluster.scene import Scene, scene
from tests.real.zookeeper.proxy import Proxy

MULTI = 14
_XID_AND_TYPE = struct.Struct(">ii")
_REPLY = struct.Struct(">iqi")


class LossyProxy(Proxy):
    """Strikes at a chosen multi: :meth:`lose` swallows its reply, :meth:`strike` does something at that moment.

    ``lost`` counts replies that were swallowed although the server had applied the multi.
    """

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.lost = 0
        self._wanted: re.Pattern[bytes] | None = None
        self._before = False
        self._awaited: int | None = None
        self._act = self.cut

    def lose(self, names: str) -> None:
        """Cuts the connection instead of delivering the reply of the next multi with this text."""
        self.strike(names, self.cut, before=False)

    def strike(self, names: str, act: Callable[[], None], *, before: bool) -> None:
        """Calls ``act`` instead of forwarding the next multi in which the regular expression ``names`` is found
        (``before``), or its reply.
        """
        self._wanted, self._act, self._before = re.compile(names.encode(), re.DOTALL), act, before

    @property
    def armed(self) -> bool:
        """Returns whether no such multi was sent yet."""
        return self._wanted is not None or self._awaited is not None

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._frames(reader, writer, self._sent)

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._frames(reader, writer, self._replied)

    async def _frames(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: Callable[[bytes], bool]
    ) -> None:
        try:
            while True:
                head = await reader.readexactly(4)
                body = await reader.readexactly(int.from_bytes(head, "big"))
                await self._flowing.wait()
                if not passes(body):
                    self._act()
                    self.cut()
                    return
                writer.write(head + body)
                await writer.drain()
        except asyncio.IncompleteReadError:
            writer.transport.abort()

    def _sent(self, body: bytes) -> bool:
        xid, kind = _XID_AND_TYPE.unpack_from(body)
        if self._wanted is None or kind != MULTI or not self._wanted.search(body):
            return True
        self._wanted = None
        if not self._before:
            self._awaited = xid
        return not self._before

    def _replied(self, body: bytes) -> bool:
        if self._awaited is None or len(body) < _REPLY.size:
            return True
        xid, _, error = _REPLY.unpack_from(body)
        if xid != self._awaited:
            return True
        self._awaited = None
        self.lost += error == 0
        return False


@asynccontextmanager
async def proxied(**options: Any) -> AsyncIterator[tuple[Scene, LossyProxy]]:
    """Runs a scene whose daemon reaches ZooKeeper through the proxy."""
    async with scene(**options) as stage:
        proxy = LossyProxy("127.0.0.1", stage.w.cluster.zookeeper.port)
        await proxy.start()
        try:
            await stage.restart_with({"zookeeper.connect": f"127.0.0.1:{proxy.port}"})
            yield stage, proxy
        finally:
            await stage.daemon.kill()
            await proxy.stop()
