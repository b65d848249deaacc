"""Connections of servers and clients: each end has its cause, and each is counted at its Hello."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest

from brokers.listener.inbound import ListenerLimits
from brokers.regions.connection import Peer
from brokers.regions.listener import RegionListener
from brokers.regions.secret import NO_SECRETS, Secrets, secrets_in
from brokers.security.authentication import SecurityUnusable
from brokers.wire.primitives import BadMessage
from controller.regions.metrics import RegionGauges, RegionsCollector
from controller.regions.process import domain_of
from regent_agent import codec, protocol
from regent_agent.codec import LENGTH, decode_response, encode
from regent_agent.protocol import (
    INVALID,
    NOT_ACTIVE,
    UNAUTHENTICATED,
    Hello,
    Leave,
    Left,
    Poll,
    Refused,
    Response,
    Welcome,
)
from tests.kit.deadlines import eventually
from tests.kit.regions.daemon import settings_of

SECRET = "s3cret"
PATIENT = ListenerLimits(idle_timeout_ms=600_000, frame_timeout_ms=600_000, call_timeout_ms=600_000)
"""No connection ends by itself during a test."""
WAIT_S = 60.0
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


SECRETS = Secrets((SECRET,))


class View:
    def region_gauges(self) -> RegionGauges:
        return RegionGauges()


async def last_response(port: int, request: Hello | Leave | bytes) -> bytes:
    """Sends a request or a frame on a connection of its own; returns all that comes until the connection's end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request if isinstance(request, bytes) else encode(request))
    try:
        async with asyncio.timeout(60):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_refusals_at_hello_are_counted_by_cause(tmp_path: Path) -> None:
    domain = domain_of(settings_of(tmp_path), None, SECRETS)
    listener = domain.listener
    await listener.start()
    try:
        for hello, code in ((Hello(0, SECRET), INVALID), (Hello(1, "x"), UNAUTHENTICATED), (Hello(1), UNAUTHENTICATED)):
            found = decode_response((await last_response(listener.port, hello))[LENGTH.size :])
            assert isinstance(found, Refused)
            assert found.code == code
        assert await last_response(listener.port, Leave("s1", 5, 1)) == b"", "nothing is read before Hello"
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(encode(Hello(1, SECRET)))
        await eventually(lambda: listener.connections == 1)
        writer.close()
    finally:
        await listener.stop()
    assert domain.counters.hellos_refused == {"version": 1, "secret": 2, "missing": 1}
    [metric] = [
        one for one in RegionsCollector(domain.counters, View().region_gauges).collect() if "hellos" in one.name
    ]
    assert {one.labels["cause"]: one.value for one in metric.samples if one.name.endswith("_total")} == {
        "version": 1, "secret": 2, "missing": 1,
    }  # fmt: skip


MANY = b"\xdd\x00\x10\x00\x00" + b"\xa0" * 10
HOSTILE = {
    "a list beyond its bound": b"\x94\xa6follow\x01\x01" + MANY,
    "the same, with a longer form of its tag": b"\x94\xd9\x06follow\x01\x01" + MANY,
    "no request": b"\xc1",
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_bytes_that_are_no_request_before_hello_are_counted_and_leave_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    listener = domain_of(settings_of(tmp_path), None, SECRETS).listener
    await listener.start()
    try:
        for _ in range(3):
            assert await last_response(listener.port, LENGTH.pack(len(HOSTILE[what])) + HOSTILE[what]) == b""
    finally:
        await listener.stop()
    assert listener.hellos_refused == {"missing": 3}
    assert [one.levelname for one in caplog.records if one.name == "regent.listener"] == ["WARNING"]


async def test_bytes_that_are_no_request_after_hello_are_no_refused_hello(tmp_path: Path) -> None:
    listener = domain_of(settings_of(tmp_path), None).listener
    with pytest.raises(BadMessage):
        await listener.respond(b"\xc1")
    assert listener.hellos_refused.total() == 0


@pytest.mark.parametrize("secret", ["", SECRET])
async def test_a_fitting_hello_is_not_counted(tmp_path: Path, secret: str) -> None:
    listener = domain_of(settings_of(tmp_path), None, Secrets((secret,)) if secret else NO_SECRETS).listener
    await listener.respond(encode(Hello(1, secret))[LENGTH.size :])
    assert not listener.hellos_refused


@pytest.mark.parametrize(
    ("secrets", "given", "expected"),
    [
        (SECRETS, "wrong", "it is not that of regions.secret_file, which clients give, too"),
        (SECRETS, "", "none was given; give that of regions.secret_file, which clients give, too"),
        (
            Secrets((SECRET,), ("another",)),
            "wrong",
            "it is not that of regions.secret_file, or of regions.clients_secret_file for a client",
        ),
    ],
)
async def test_a_refused_secret_leaves_a_line_with_the_listener_and_the_secrets_that_are_expected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, secrets: Secrets, given: str, expected: str
) -> None:
    listener = domain_of(settings_of(tmp_path), None, secrets).listener
    await listener.start()
    try:
        for _ in range(4):
            await last_response(listener.port, Hello(1, given))
    finally:
        await listener.stop()
    [line] = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert line.startswith("the listener of regions refused the Hello of 127.0.0.1")
    assert f"secret: {expected}" in line
