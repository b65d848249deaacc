"""What the connection takes from the socket: in large pieces, and each message of them at once."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from kazoo.exceptions import ConnectionDropped
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.connection import CLOSE_RESPONSE, WATCH_XID
from kazoo.protocol.serialization import Close

from metadata_store.kazoo_adapter import jute
from metadata_store.kazoo_adapter.kazoo_client import RECEIVED_BYTES, Client, _Connection
from tests.kit.certificates import Authority

READ_S = 60.0


class Counted:
    """A socket that counts what is taken from it at once."""

    def __init__(self, near: socket.socket) -> None:
        self._near = near
        self.taken: list[int] = []

    def fileno(self) -> int:
        return self._near.fileno()

    def recv(self, most: int) -> bytes:
        found = self._near.recv(most)
        self.taken.append(len(found))
        return found


class Link:
    """A connection whose server is this test."""

    def __init__(self, connection: _Connection) -> None:
        self.connection = connection
        near, self.far = socket.socketpair()
        self.near = near
        near.setblocking(False)
        self.socket = Counted(near)
        connection._socket = self.socket
        self.events: list[str] = []
        connection._read_watch_event = lambda buffer, offset: self.events.append(jute.event_at(buffer, offset)[1])  # type: ignore[method-assign]

    def read(self) -> Any:
        return self.connection._read_socket(READ_S)


def message(xid: int, body: bytes, zxid: int = 0) -> bytes:
    frame = struct.pack("!iqi", xid, zxid, 0) + body
    return struct.pack("!i", len(frame)) + frame


def event(path: str) -> bytes:
    return message(WATCH_XID, struct.pack("!ii", 3, 3) + jute.text(path))


@pytest.fixture
def link() -> Iterator[Link]:
    found = Link(Client(mock.Mock(), "10.0.0.1:1", 10_000, None)._connection)
    yield found
    for one in (found.near, found.far):
        one.close()


def test_all_events_that_came_together_are_taken_by_one_call(link: Link) -> None:
    paths = [f"/{number}" for number in range(500)]
    link.far.sendall(b"".join(map(event, paths)))
    link.read()
    assert link.events == paths
    assert len(link.socket.taken) == 1


def test_a_message_in_two_parts_waits_for_the_second_one(link: Link) -> None:
    first, second, third = event("/1"), event("/2"), event("/3")
    link.far.sendall(first + second[:7])
    link.read()
    assert link.events == ["/1"]
    link.far.sendall(second[7:] + third[:2])
    link.read()
    assert link.events == ["/1", "/2"]
    link.far.sendall(third[2:])
    link.read()
    assert link.events == ["/1", "/2", "/3"]


def test_a_message_that_is_larger_than_a_piece_is_whole(link: Link) -> None:
    path = "/" + "x" * (RECEIVED_BYTES * 3)
    sending = threading.Thread(target=link.far.sendall, args=(event(path) + event("/small"),))
    sending.start()
    while len(link.events) < 2:
        link.read()
    sending.join()
    assert link.events == [path, "/small"]
    assert len(link.socket.taken) > 1
    assert link.connection._came == b"", "a large message is not kept"


def test_the_end_of_the_session_is_told_at_once(link: Link) -> None:
    link.connection.client._pending.append((Close(), None, 7))
    link.far.sendall(event("/1") + message(7, b"", zxid=9) + event("/late"))
    assert link.read() == CLOSE_RESPONSE
    assert link.events == ["/1"]
    assert link.connection.client.last_zxid == 9


def test_a_server_that_hangs_up_or_lies_about_a_size_is_left(link: Link) -> None:
    link.far.sendall(struct.pack("!i", -3))
    with pytest.raises(ConnectionDropped, match="announced -3 bytes"):
        link.read()
    link.far.sendall(event("/1")[:9])
    link.far.close()
    with pytest.raises(ConnectionDropped, match="broken"):
        link.connection._read(100, READ_S)


def test_a_server_that_stops_within_a_message_is_left(link: Link) -> None:
    link.far.sendall(event("/1")[:9])
    with pytest.raises(KazooTimeoutError):
        link.connection._read_socket(0.01)


def test_nothing_of_a_connection_is_read_on_the_next_one(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    link.far.sendall(event("/1") + event("/2")[:11])
    link.read()
    monkeypatch.setattr("kazoo.protocol.connection.ConnectionHandler._connect_attempt", lambda *_: None)
    link.connection._connect_attempt("zk1", "10.0.0.1", 1, None)
    link.far.sendall(event("/3"))
    link.read()
    assert link.events == ["/1", "/3"]


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    yield near, far
    near.close()
    far.close()


def test_a_wait_tells_apart_what_can_be_read_and_what_can_be_written(
    link: Link, pair: tuple[socket.socket, socket.socket]
) -> None:
    near, far = pair
    select = link.connection.handler.select
    assert select([near], [], [], 0.001) == ([], [], [])
    assert select([], [near], [], READ_S) == ([], [near], [])
    far.send(b"x")
    assert select([near, link.near], [], [], READ_S) == ([near], [], [])
    far.close()
    assert near.recv(2) == b"x"
    assert select([near], [], [], READ_S) == ([near], [], []), "the end is there to be read"


def test_events_in_one_record_of_tls_are_all_taken(link: Link, tmp_path: Path) -> None:
    """The socket below has nothing more to tell once the record is decrypted, and may have a part of one."""
    authority = Authority(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.signed("server"))
    near, far = socket.socketpair()
    paths = [f"/{number}" for number in range(5_000)]

    def serve() -> None:
        with server.wrap_socket(far, server_side=True) as secured:
            secured.sendall(b"".join(map(event, paths)))

    serving = threading.Thread(target=serve)
    serving.start()
    with ssl.create_default_context(cafile=authority.file).wrap_socket(near, server_hostname="127.0.0.1") as secured:
        secured.setblocking(False)
        link.connection._socket = secured
        while len(link.events) < len(paths):
            assert link.connection.handler.select([secured], [], [], READ_S)[0]
            link.read()
    serving.join()
    assert link.events == paths
