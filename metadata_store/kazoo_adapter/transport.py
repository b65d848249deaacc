"""Shows one session on kazoo's thread as the event loop sees it.

kazoo's connection thread hands everything over through one deque, in the order of the wire. Replies, watch events and
states reach the loop in that order, with one wake-up for many of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from metadata_store.errors import SessionLost
from metadata_store.kazoo_adapter.call import Call
from metadata_store.kazoo_adapter.jute import Reply
from metadata_store.kazoo_adapter.kazoo_client import Client
from metadata_store.kazoo_adapter.limits import LearnedLimits
from metadata_store.kazoo_adapter.tls import ZooKeeperTls
from metadata_store.port import ConnectionState

CLOSE_S_MAX: Final = 2.0
"""How long a close waits for ZooKeeper's reply before it cuts the connection."""

_log = logging.getLogger("regent.metadata_store")


class Transport:
    """One session. Everything but ``hand_over``, ``event``, ``flag`` and ``changed`` is called on the event loop.

    ``on_event`` gets the raw body of a watch event, ``on_state`` the state; both are called on the loop.
    ``on_state_thread`` is called at once on kazoo's thread whenever the connection is not CONNECTED any more.
    """

    def __init__(
        self,
        hosts: str,
        session_timeout_ms: int,
        credentials: str | None,
        on_event: Callable[[bytes, int], None],
        on_state: Callable[[ConnectionState], None],
        on_state_thread: Callable[[ConnectionState], None],
        limits: LearnedLimits,
        tls: ZooKeeperTls | None = None,
        sasl: str | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.state = ConnectionState.LOST
        self.session_id = 0
        self.last_zxid = 0
        self.connection = 0
        self.auth_failed = False
        self.ended = asyncio.Event()
        self._reported: ConnectionState | None = None
        self._closing = False
        self._waking = False
        self._limits = limits
        self._items: deque[Callable[[], None]] = deque()
        self._on_event, self._on_state, self._on_state_thread = on_event, on_state, on_state_thread
        self._client = Client(self, hosts, session_timeout_ms, credentials, tls, sasl)

    @property
    def session_timeout_ms(self) -> int:
        """As granted by the server."""
        return self._client.granted_ms

    @property
    def peer(self) -> tuple[str, int] | None:
        """Address of the connected server."""
        return self._client.peer

    @property
    def connected(self) -> bool:
        """Checks whether a request would be sent: the loop knows of the connection and it still stands."""
        client = self._client
        return self.state is ConnectionState.CONNECTED and client.connections == self.connection and client.connected

    def start(self) -> None:
        """Begins to connect; ``on_state`` reports the progress."""
        self._client.start_async()

    @property
    def received(self) -> int:
        """Grows with each reply and each watch event, but not with pings: a server without a leader replies to them."""
        return self._client.received

    def leave(self, silent_s: float) -> bool:
        """Gives up the connection to a silent server; False where the ensemble has no other one."""
        client = self._client
        if not client.servers.several or client.connections != self.connection:
            return False
        _log.warning(
            "ZooKeeper server %s sent no reply for %.1f s: its connection is closed, and the session is resumed at "
            "another server. It may be frozen or cut off, or healthy while the ensemble has no leader: query every "
            "server for its mode (echo srvr | nc HOST PORT)",
            ":".join(map(str, self.peer or ("unknown",))),
            silent_s,
        )
        client.cut()
        return True

    def send(self, opcode: int, body: bytes, *, writes: bool) -> asyncio.Future[Reply]:
        """Sends a request; raises NotConnected or SessionLost at once where there is no connection."""
        if self.state is ConnectionState.LOST:
            raise SessionLost("no ZooKeeper session: nothing was sent")
        call = Call(self, opcode, body, writes)
        self._client.send(call, self.connection)
        return call.future

    async def close(self) -> None:
        """Ends the session within about twice ``CLOSE_S_MAX``; afterwards nothing is called back any more."""
        self._closing = True
        if not self.ended.is_set():
            self._client.begin_close()
            try:
                await self._ends_within(CLOSE_S_MAX)
            finally:
                self._client.cut()
            await self._ends_within(CLOSE_S_MAX)
        if self.ended.is_set():
            self._client.release(CLOSE_S_MAX)
        else:
            level = (
                logging.WARNING if self.connection else logging.DEBUG
            )  # a first connect that fails is an error itself
            _log.log(level, "the ZooKeeper connection thread is stuck in a connect; it ends by itself at its time-out")
        self.state = ConnectionState.LOST
        self._drain()

    async def _ends_within(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.ended.wait(), timeout_s)

    # -- called on kazoo's thread

    def hand_over(self, item: Callable[[], None]) -> None:
        """Has ``item`` called on the loop, in order."""
        self._items.append(item)
        if self._waking:
            return
        self._waking = True
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._drain)

    def event(self, buffer: bytes, offset: int) -> None:
        """Passes on a watch event."""
        self.hand_over(lambda: self._deliver(buffer, offset))

    def flag(self, state: ConnectionState) -> None:
        """Passes on first, at once, that the connection is about to leave CONNECTED."""
        if self._closing:
            return
        try:
            self._on_state_thread(state)
        except Exception:
            _log.exception("on_state_thread failed at %s", state)

    def changed(self, state: ConnectionState) -> None:
        """Passes on the new state."""
        client = self._client
        connection, session_id, auth_failed = client.connections, client.session, client.auth_failed
        self.hand_over(lambda: self._enter(state, connection, session_id, auth_failed))

    # -- called on the loop

    def _drain(self) -> None:
        self._waking = False
        items = self._items
        while items:
            items.popleft()()

    def unanswered(self, opcode: int, size: int, under_way_s: float) -> None:
        """Notes that the connection ended before the reply to a request."""
        self._limits.unanswered(opcode, size, under_way_s)

    def answered(self, size: int) -> None:
        """Notes the reply to a request."""
        self._limits.answered(size)

    def _deliver(self, buffer: bytes, offset: int) -> None:
        if not self._closing:
            self._on_event(buffer, offset)

    def _enter(self, state: ConnectionState, connection: int, session_id: int, auth_failed: bool) -> None:
        ended = state is ConnectionState.LOST
        if state is ConnectionState.CONNECTED:
            self._limits.ended()
        self.state, self.connection = state, connection
        self.session_id = session_id or self.session_id
        self.auth_failed |= auth_failed
        if ended and self._client.ended:
            self.ended.set()
        if state is not self._reported and not self._closing:
            self._reported = state
            self._on_state(state)
