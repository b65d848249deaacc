"""Puts a TCP proxy before one ZooKeeper client: it cuts, refuses, stalls, and swallows replies."""

from __future__ import annotations

import asyncio
import socket
import struct

PING_BYTES = 12
HEADER = struct.Struct(">iqi")
"""Head of a reply: number of the request, zxid, error."""


class Proxy:
    """Listens from its construction on; forwards from :meth:`start` on."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen()
        self.port: int = self._socket.getsockname()[1]
        self.connections = 0
        self._accepting = True
        self._mute = False
        self._losing = self._lost = False
        self._code: int | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, sock=self._socket)

    def cut(self) -> None:
        """Closes every connection."""
        for writer in self._writers:
            writer.transport.abort()

    def suspend(self) -> None:
        """Cuts, and refuses until :meth:`resume`."""
        self._accepting = False
        self.cut()

    def resume(self) -> None:
        self._accepting = True

    def lose_reply(self) -> None:
        """Cuts when the server has replied to the next request."""
        self._losing = True

    def reply_with(self, code: int) -> None:
        """Replaces the reply to the next request by an error."""
        self._code = code

    def mute(self) -> None:
        """Cuts, and leaves the next connection without a reply."""
        self._mute = True
        self.cut()

    def stall(self) -> None:
        """Keeps connections open and forwards nothing."""
        self._flowing.clear()

    async def stop(self) -> None:
        self._flowing.set()
        self.cut()
        if self._server is not None:
            self._server.close()
        self._socket.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._accepting:
            writer.transport.abort()
            return
        self.connections += 1
        if self._mute:
            self._mute = False
            self._writers.add(writer)
            try:
                while await reader.read(65536):
                    pass
            except OSError:
                pass
            finally:
                self._writers.discard(writer)
                writer.transport.abort()
            return
        try:
            to_reader, to_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, to_writer}
        self._writers |= both
        try:
            await asyncio.gather(self._up(reader, to_writer), self._down(to_reader, writer))
        except OSError:
            pass
        finally:
            self._writers -= both
            for end in both:
                end.transport.abort()

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._flowing.wait()
            self._lost = self._losing and len(data) > PING_BYTES
            writer.write(data)
            await writer.drain()
        writer.transport.abort()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._flowing.wait()
            if self._lost:
                self._losing = self._lost = False
                self.cut()
                return
            if self._code is not None:
                data = self._with_error(data, self._code)
            writer.write(data)
            await writer.drain()
        writer.transport.abort()

    def _with_error(self, data: bytes, code: int) -> bytes:
        """Returns whole frames, with the first reply to a request replaced by an error."""
        frames, at = [], 0
        while at < len(data):
            [size] = struct.unpack_from(">i", data, at)
            frame = data[at + 4 : at + 4 + size]
            request, zxid, _ = HEADER.unpack_from(frame)
            if request > 0 and self._code is not None:
                frame, self._code = HEADER.pack(request, zxid, code), None
            frames.append(struct.pack(">i", len(frame)) + frame)
            at += 4 + size
        return b"".join(frames)
