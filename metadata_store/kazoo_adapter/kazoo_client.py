"""Uses kazoo for connection, session, pings and authentication. It is the only file that imports kazoo.

Requests and replies are raw bytes here (:mod:`metadata_store.kazoo_adapter.jute` has their contents). So MultiRead and
SetWatches, which kazoo does not have, are requests like any other, and replies are decoded outside of kazoo's thread.
Methods of kazoo's connection are replaced; they are internals, so the version is pinned. What the server sends is read
in large pieces: watches come by the thousand, and kazoo needs ten system calls for each.

Invariants: A request is queued only while CONNECTED and only on the connection that the loop knows of, so nothing
survives a blip in a queue. After LOST no new session is opened by itself. A watch event is never looked up in kazoo's
tables, so none is lost between arming a watch and an older event of the same path.
"""
# ruff: noqa: SLF001 - kazoo's internals are what this file is about

from __future__ import annotations

import contextlib
import math
import secrets
import select
import socket
import ssl
import threading
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

import kazoo
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionDropped
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import STOP_CONNECTING, ConnectionHandler
from kazoo.protocol.serialization import SASL, Close, CloseInstance, Connect
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry
from kazoo.version import __version__ as kazoo_version

from metadata_store.errors import NotConnected
from metadata_store.kazoo_adapter.call import Call, Listener
from metadata_store.kazoo_adapter.jute import Reply
from metadata_store.kazoo_adapter.library_log import library_log
from metadata_store.kazoo_adapter.sasl_digest import DigestMd5, SaslFailed
from metadata_store.kazoo_adapter.servers import Address, Servers
from metadata_store.kazoo_adapter.tls import ZooKeeperTls
from metadata_store.port import ConnectionState

SUPPORTED_KAZOO: Final = "2.11.0"
if kazoo_version != SUPPORTED_KAZOO:
    raise ImportError(
        f"kazoo {kazoo_version} is installed ({kazoo.__file__}), but the ZooKeeper adapter replaces internals of "
        f"kazoo {SUPPORTED_KAZOO}: install kazoo=={SUPPORTED_KAZOO}"
    )

INT32_MAX: Final = 2**31 - 1
WAKEUPS_MAX: Final = 4_096
RECEIVED_BYTES: Final = 65_536
"""Bytes that are taken from the socket at once."""
_SIZE: Final = Struct("!i")
RECONNECT_DELAY_S: Final = 0.1
RECONNECT_DELAY_S_MAX: Final = 1.0
_CLOSED: Final = (KeeperState.CLOSED, KeeperState.EXPIRED_SESSION, KeeperState.AUTH_FAILED)


class _Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's connection with raw replies and events."""

    client: Client
    _xid: int
    _came: bytes = b""
    _at: int = 0
    """What the socket had, and how much of it is read."""

    def start(self) -> None:
        """Starts the thread; waking it never blocks the event loop (a socket pair holds some 270 wake-ups)."""
        super().start()
        self._write_sock.setblocking(False)

    def wake(self) -> None:
        """Has the thread look at the queue."""
        with contextlib.suppress(BlockingIOError):  # the buffer is full: enough wake-ups are queued
            self._write_sock.send(b"\0")

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        """Sends everything that is queued, however many wake-ups there were (kazoo: one request for each)."""
        self._read_sock.recv(WAKEUPS_MAX)
        client = self.client
        while client._queue:
            request, call = client._queue[0]
            self._xid = (self._xid % INT32_MAX) + 1
            self._submit(request, connect_timeout, self._xid)
            client._queue.popleft()
            client._pending.append((request, call, self._xid))

    def _expand_client_hosts(self) -> list[Address]:
        return self.client.servers.round(super()._expand_client_hosts())

    def _connect_attempt(self, host: str, hostip: str, port: int, retry: Any) -> Any:
        """Runs a connection to its end; the server is tried last then."""
        self._came, self._at = b"", 0
        status = super()._connect_attempt(host, hostip, port, retry)
        if status is not STOP_CONNECTING:
            self.client.servers.failed(hostip, port)
        return status

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        """Connects; leaves a server that accepts the connection and does not respond, as one that starts.

        kazoo waits for as long as a session, which would be over before another attempt.
        """
        client = self.client
        result = super()._invoke(min(timeout, client.attempt_s), request, xid)
        if isinstance(request, Connect):
            client.granted_ms = result[0].time_out
            client.servers.connected()
        return result

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        """Logs in before anything else on a connection; a server that refuses the login replies so, or hangs up."""
        user, _, password = self.client.sasl.partition(":")
        login = DigestMd5(user, password, secrets.token_hex(16))
        try:
            response = login.respond(self._sasl(1, b"", timeout))
            login.verify(self._sasl(2, response, timeout))
        except SaslFailed as error:
            raise AuthFailedError(str(error)) from error
        except ConnectionDropped as dropped:
            raise AuthFailedError(f"{host} hung up at the SASL login") from dropped

    def _sasl(self, xid: int, token: bytes, timeout: float) -> bytes:
        self._submit(SASL(token), timeout, xid)
        header, buffer, offset = self._read_header(timeout)
        if header.err:
            raise SaslFailed(f"the server refused the SASL login (error {header.err})")
        answer, _ = SASL.deserialize(buffer, offset)
        return answer or b""

    def _read_socket(self, read_timeout: float) -> Any:
        """Takes a message, and each one that came with it: no select tells of those."""
        answer = super()._read_socket(read_timeout)
        while answer is None and self._has_message():
            answer = super()._read_socket(read_timeout)
        return answer

    def _has_message(self) -> bool:
        rest = len(self._came) - self._at - _SIZE.size
        return rest >= 0 and rest >= _SIZE.unpack_from(self._came, self._at)[0]

    def _read(self, length: int, timeout: float) -> bytes:
        """Returns so many bytes; those that the socket has behind them are kept for the next call."""
        if length < 0:
            raise ConnectionDropped(f"the server announced {length} bytes")
        end = self._at + length
        if end > len(self._came):
            self._receive(end - len(self._came), timeout)
            end = length
        found, self._at = self._came[self._at : end], end
        if end == len(self._came):
            self._came, self._at = b"", 0  # it may have been a large one
        return found

    def _receive(self, missing: int, timeout: float) -> None:
        """Takes so many bytes from the socket, or more; what is read already goes."""
        parts = [self._came[self._at :]]
        with self._socket_error_handling():
            while missing > 0:
                if not self.handler.select([self._socket], [], [], timeout)[0]:
                    raise self.handler.timeout_exception("socket time-out during read")
                try:
                    part = self._socket.recv(max(missing, RECEIVED_BYTES))
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    continue
                if not part:
                    raise ConnectionDropped("socket connection broken")
                parts.append(part)
                missing -= len(part)
        self._came, self._at = b"".join(parts), 0

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        self.client.received += 1
        self.client.listener.event(buffer, offset)

    def _read_response(self, header: Any, buffer: bytes, offset: int) -> Any:
        request, call, xid = self.client._pending.popleft()
        self.client.received += 1
        if header.zxid > 0:
            self.client.last_zxid = header.zxid
        if header.xid != xid:
            if call is not None:
                call.set_exception(ConnectionDropped())
            raise ConnectionDropped(f"reply {header.xid} came where {xid} was due")
        if call is not None:
            call.reply(Reply(header.err, header.zxid, buffer, offset))
        return Close.type if isinstance(request, Close) else None


class Client(KazooClient):  # type: ignore[misc]  # kazoo has no types
    """kazoo's client with one connection policy: no queueing across connections, no second session."""

    def __init__(
        self,
        listener: Listener,
        hosts: str,
        session_timeout_ms: int,
        credentials: str | None,
        tls: ZooKeeperTls | None = None,
        sasl: str | None = None,
    ) -> None:
        self.listener = listener
        self.sasl = sasl or ""
        self.granted_ms = 0
        self.connections = 0
        self.received = 0
        self.servers = Servers()
        self.gate = threading.Lock()
        super().__init__(
            hosts=hosts,
            timeout=session_timeout_ms / 1000,
            auth_data=[("digest", credentials)] if credentials else None,
            handler=_Handler(lambda: self.attempt_s),
            logger=library_log(),
            connection_retry=KazooRetry(max_tries=-1, delay=RECONNECT_DELAY_S, max_delay=RECONNECT_DELAY_S_MAX),
            **(tls.options() if tls is not None else {}),
        )
        self._connection = _Connection(
            self, self._conn_retry.copy(), logger=self.logger, sasl_options={} if sasl else None
        )

    def _session_callback(self, state: str) -> None:
        if state == self._state:
            return
        began = self._state in _CLOSED and state == KeeperState.CONNECTING
        if not began and state != KeeperState.CONNECTED:
            self.listener.flag(_port_state(state))
        if state in _CLOSED:
            self._stopped.set()
        with self.gate:
            super()._session_callback(state)
            self.connections += state == KeeperState.CONNECTED
        if not began:
            self.listener.changed(_port_state(state))

    @property
    def connected(self) -> bool:
        """Checks whether there is a connection with a session that may write."""
        return bool(self._state == KeeperState.CONNECTED)

    @property
    def ended(self) -> bool:
        """Checks whether the connection thread is done."""
        return bool(self._state == KeeperState.CLOSED)

    @property
    def auth_failed(self) -> bool:
        """Checks whether the server refused the credentials."""
        return bool(self._state == KeeperState.AUTH_FAILED)

    @property
    def attempt_s(self) -> float:
        """Returns how long an attempt at a server may take."""
        return self.servers.attempt_s((self.granted_ms or self._session_timeout) / 1000)

    @property
    def session(self) -> int:
        """Id of the session, 0 without one."""
        return self._session_id or 0

    def send(self, call: Call, connection: int) -> None:
        """Queues a request; raises NotConnected unless ``connection`` is the present one."""
        with self.gate:
            if not self.connected or self.connections != connection:
                raise NotConnected("not connected to ZooKeeper: nothing was sent")
            self._queue.append((call, call))
        self._connection.wake()

    def begin_close(self) -> None:
        """Requests the end of the session; the connection thread ends with the reply."""
        self._stopped.set()
        self._queue.append((CloseInstance, None))
        self._connection.wake()

    def cut(self) -> None:
        """Ends the connection without waiting for a reply."""
        open_socket = self._connection._socket
        if open_socket is not None:
            with contextlib.suppress(OSError):  # already gone
                socket.socket.shutdown(open_socket, socket.SHUT_RDWR)  # of TLS, too: another thread reads

    def release(self, timeout_s: float) -> None:
        """Joins the ended connection thread and frees its sockets."""
        self._connection.stop(timeout_s)
        self.close()

    @property
    def peer(self) -> tuple[str, int] | None:
        """Address of the connected server."""
        open_socket = self._connection._socket
        try:
            address = open_socket.getpeername() if open_socket is not None else None
        except OSError:
            return None
        return (address[0], address[1]) if address else None


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Handler without kazoo's two callback threads: nothing is called back through kazoo.

    ``attempt_s`` bounds each TCP connect; kazoo's bound is a whole session.
    """

    def __init__(self, attempt_s: Callable[[], float]) -> None:
        super().__init__()
        self._attempt_s = attempt_s

    def create_connection(self, *args: Any, timeout: float, **options: Any) -> Any:
        """Returns a connected socket."""
        return super().create_connection(*args, timeout=min(timeout, self._attempt_s()), **options)

    def start(self) -> None:
        """Starts nothing."""

    def stop(self) -> None:
        """Stops nothing."""

    def select(self, reading: list[Any], writing: list[Any], _: list[Any], timeout: float) -> Any:
        """Waits as kazoo does, without a selector of its own for each wait.

        Bytes that TLS has decrypted already count: the socket below hides them.
        """
        waiting = [one for one in reading if isinstance(one, ssl.SSLSocket) and one.pending()]
        poll, files = select.poll(), {one.fileno(): one for one in (*reading, *writing)}
        for one in reading:
            poll.register(one, select.POLLIN)
        for one in writing:
            poll.register(one, select.POLLOUT)
        ready = [files[file] for file, _ in poll.poll(0 if waiting else math.ceil(max(0.0, timeout) * 1000))]
        return (
            [one for one in reading if one in waiting or one in ready],
            [one for one in writing if one in ready],
            [],
        )


def _port_state(state: str) -> ConnectionState:
    if state == KeeperState.CONNECTED:
        return ConnectionState.CONNECTED
    return ConnectionState.LOST if state in _CLOSED else ConnectionState.SUSPENDED
