"""Connections of servers and clients end with what they were for: a term, a daemon, a secret that does not fit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest

from brokers.listener.inbound import ListenerLimits
from brokers.regions.listener import RegionListener
from brokers.regions.peer import Peer
from brokers.regions.secret import Secrets, secrets_in
from brokers.security.users import SecurityUnusable
from regent_agent import codec, protocol
from regent_agent.codec import LENGTH, decode_response, encode
from regent_agent.protocol import NOT_ACTIVE, UNAUTHENTICATED, Hello, Left, Poll, Refused, Response, Welcome
from tests.kit.polling import eventually

SECRET = "s3cret"
PATIENT = ListenerLimits(idle_timeout_ms=600_000, frame_timeout_ms=600_000, call_timeout_ms=600_000)
"""No connection ends by itself during a test."""
WAIT_S = 20.0
HELD, BROKEN = Poll("s1", 1, 7, 0), Poll("s2", 1, 7, 0)


class Holding:
    """A term that holds one poll for ever, and that another one meets with a fault. ``took``: its requests."""

    epoch = 7

    def __init__(self) -> None:
        self.took: list[protocol.Request] = []

    def judge(self, head: codec.Head, peer: Peer) -> Refused | None:
        return None

    async def handle(self, request: protocol.Request, peer: Peer) -> Response:
        self.took.append(request)
        if request == BROKEN:
            raise ZeroDivisionError
        if request == HELD:
            await asyncio.get_running_loop().create_future()
        return Left(0)

    async def routes(self, request: protocol.Follow | protocol.ListRoutes) -> bytes:
        raise AssertionError("no client comes")


@asynccontextmanager
async def listening(handlers: Holding, secret: str = "") -> AsyncIterator[RegionListener]:
    listener = RegionListener("127.0.0.1", 0, PATIENT, secrets=Secrets((secret,) if secret else ()))
    await listener.start()
    listener.serve(handlers)
    try:
        yield listener
    finally:
        await listener.stop()


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connected(listener: RegionListener, *requests: protocol.Request) -> Stream:
    """Sends requests on a connection of its own, all at once."""
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"".join(map(encode, requests)))
    return reader, writer


async def response(stream: Stream) -> Response | None:
    """Returns the next response, None where the connection has ended."""
    try:
        async with asyncio.timeout(WAIT_S):
            (length,) = LENGTH.unpack(await stream[0].readexactly(LENGTH.size))
            return decode_response(await stream[0].readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


@pytest.mark.parametrize("how", ["resign", "stop"])
async def test_with_a_term_end_the_connections_that_are_idle_and_those_that_wait(
    how: Literal["resign", "stop"],
) -> None:
    """A held poll must not be answered later: its server would believe in a lease that nobody watches."""
    handlers = Holding()
    async with listening(handlers) as listener:
        idle, waiting = await connected(listener, Hello(1)), await connected(listener, Hello(1), HELD)
        assert [type(await response(one)) for one in (idle, waiting)] == [Welcome, Welcome]
        await eventually(lambda: handlers.took == [HELD])
        if how == "resign":
            listener.resign()
        else:
            await listener.stop()
        assert [await response(one) for one in (idle, waiting)] == [None, None]
        await eventually(lambda: listener.connections == 0)


@pytest.mark.parametrize(("given", "why"), [("", "none was given"), ("guessed", "it is not that of")])
async def test_a_peer_without_the_secret_is_told_which_one_to_give(given: str, why: str) -> None:
    async with listening(Holding(), SECRET) as listener:
        refused = await response(await connected(listener, Hello(1, given)))
        assert isinstance(refused, Refused)
        assert why in refused.text
        assert "regions.secret_file, which clients give, too" in refused.text


async def test_a_hello_that_does_not_fit_ends_its_connection_and_nothing_behind_it_is_read() -> None:
    handlers = Holding()
    async with listening(handlers, SECRET) as listener:
        stream = await connected(listener, Hello(1, "guessed"), Hello(1, SECRET), Poll("s1", 1, 7, 1))
        refused = await response(stream)
        assert isinstance(refused, Refused)
        assert refused.code == UNAUTHENTICATED
        assert await response(stream) is None, "a second guess takes a second connection"
        assert (listener.hellos_refused["secret"], handlers.took) == (1, [])


async def test_a_newer_peer_is_welcomed_with_the_version_of_this_daemon() -> None:
    async with listening(Holding()) as listener:
        welcome = await response(await connected(listener, Hello(protocol.VERSION + 5)))
        assert isinstance(welcome, Welcome)
        assert (welcome.version, welcome.epoch) == (protocol.VERSION, 7)


async def test_a_fault_in_one_request_leaves_its_connection_to_the_next(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(Holding()) as listener:
        stream = await connected(listener, Hello(1), BROKEN, Poll("s3", 1, 7, 0))
        assert isinstance(await response(stream), Welcome)
        failed = await response(stream)
        assert isinstance(failed, Refused)
        assert (failed.code, failed.text) == (NOT_ACTIVE, "the daemon failed to handle it: try again")
        assert await response(stream) == Left(0)
    assert "a Poll failed; its peer tries it again" in caplog.text


def test_a_file_has_the_present_secret_and_at_most_one_before_it(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    lines = ["a" * 16, "b" * 16, "c" * 16]
    file.write_text("\n".join(lines[:2]) + "\n")
    assert secrets_in("regions.secret_file", file) == tuple(lines[:2])
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(SecurityUnusable, match="while it is replaced, a second line with the other one"):
        secrets_in("regions.secret_file", file)


async def test_what_a_client_has_seen_is_not_judged_and_a_server_that_is_refused_for_it_is_let_go() -> None:
    """A term would end by the word of any client, which has no secret of servers."""
    judged: list[tuple[int, int]] = []

    async def seen(proof: str, epoch: int, token: int) -> str:
        judged.append((epoch, token))
        return "the store is older"

    async with listening(Holding(), SECRET) as listener:
        listener._secrets, listener.seen = Secrets((SECRET,), ("of clients",)), seen
        client = await connected(listener, Hello(1, "of clients", b"p" * 16, 9, 99))
        assert isinstance(await response(client), Welcome)
        assert not judged
        server = await connected(listener, Hello(1, SECRET, b"p" * 16, 9, 99), Hello(1, SECRET))
        refused = await response(server)
        assert isinstance(refused, Refused)
        assert (refused.code, refused.text, judged) == (protocol.RESTORED, "the store is older", [(9, 99)])
        assert await response(server) is None, "nothing behind it is read"
