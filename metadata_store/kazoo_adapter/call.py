"""Declares a request that was sent, and the listener to replies, events and states of the connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from metadata_store.errors import TROUBLE, TROUBLE_PAUSE_S, Code, NotConnected, OutcomeUnknown, trouble
from metadata_store.kazoo_adapter.jute import Reply
from metadata_store.port import ConnectionState


class Listener(Protocol):
    """Receives replies, events and states; all of it on kazoo's thread."""

    last_zxid: int

    def unanswered(self, opcode: int, size: int, under_way_s: float) -> None:
        """Reports that the connection ended before the reply to a request sent ``under_way_s`` before."""

    def answered(self, size: int) -> None:
        """Reports the reply to a request of ``size`` bytes."""

    def hand_over(self, item: Callable[[], None]) -> None:
        """Has ``item`` called on the loop, in order."""

    def event(self, buffer: bytes, offset: int) -> None:
        """Reports a watch event."""

    def flag(self, state: ConnectionState) -> None:
        """Reports first, at once, that the connection is about to leave CONNECTED."""

    def changed(self, state: ConnectionState) -> None:
        """Reports the new state."""


class Call:
    """One request on its way: kazoo's request object and its result object in one."""

    __slots__ = ("_listener", "body", "future", "sent", "sent_s", "type", "writes")

    def __init__(self, listener: Listener, opcode: int, body: bytes, writes: bool) -> None:
        self._listener = listener
        self.type = opcode
        self.body = body
        self.writes = writes
        self.sent = False
        self.sent_s = 0.0
        self.future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        return f"<opcode {self.type}, {len(self.body)} bytes>"

    def serialize(self) -> bytes:
        """Encodes the request when kazoo writes it: from here on the server may have seen it."""
        self.sent = True
        self.sent_s = time.monotonic()
        return self.body

    def set_exception(self, _: Exception) -> None:
        """Fails the call when the connection ends before the reply; kazoo calls it."""
        under_way_s = time.monotonic() - self.sent_s
        self._listener.hand_over(lambda: self._fail(under_way_s))

    def reply(self, reply: Reply) -> None:
        """Completes the call with its reply (kazoo's thread)."""
        self._listener.hand_over(lambda: self._finish(reply))

    def _finish(self, reply: Reply) -> None:
        self._listener.last_zxid = max(self._listener.last_zxid, reply.zxid)
        self._listener.answered(len(self.body))
        if self.future.done():
            return
        if reply.err and (code := Code(reply.err)) in TROUBLE:
            self.future.get_loop().call_later(TROUBLE_PAUSE_S, self._in_trouble, code)
        else:
            self.future.set_result(reply)

    def _in_trouble(self, code: Code) -> None:
        if not self.future.done():
            self.future.set_exception(trouble(code, self, writes=self.writes))

    def _fail(self, under_way_s: float) -> None:
        if self.sent:
            self._listener.unanswered(self.type, len(self.body), under_way_s)
        if self.future.done():
            return
        if self.writes and self.sent:
            self.future.set_exception(OutcomeUnknown(f"connection lost before the reply to {self!r}"))
        else:
            self.future.set_exception(NotConnected(f"connection lost before the reply to {self!r}: nothing changed"))
