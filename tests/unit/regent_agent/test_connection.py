"""Connections: which daemon, secret, TLS, deadlines, and bytes that are no response."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regent_agent.codec import FRAME_BYTES_MAX, LENGTH, encode
from regent_agent.connection import Backoff, Channel, Daemons, RequestRefused, Unreachable
from regent_agent.protocol import (
    INVALID,
    NOT_ACTIVE,
    RESTORED,
    UNAUTHENTICATED,
    Hello,
    Leave,
    Left,
    Refused,
    Regions,
    Request,
    Response,
    Welcome,
)
from tests.kit.certificates import Authority
from tests.unit.regent_agent.kit import Respond, StandIn, closes, opens

LEAVE = Leave("s1", 5, 1)


async def test_a_request_gets_its_response() -> None:
    async with StandIn().running() as daemon:
        daemon.responses[Leave] = responding(Left(3))
        channel = Channel(Daemons([daemon.address], secret="s3cret"))
        assert await channel.request(LEAVE, Left, 5) == Left(3)
        assert await channel.request(LEAVE, Left, 5) == Left(3)
        channel.close()
    assert daemon.requests == [Hello(1, "s3cret"), LEAVE, LEAVE]


async def test_requests_side_by_side_wait_for_each_other() -> None:
    async with StandIn().running() as daemon:
        daemon.responses[Leave] = responding(Left(3))
        channel = Channel(Daemons([daemon.address]))
        assert await asyncio.gather(*(channel.request(LEAVE, Left, 5) for _ in range(5))) == [Left(3)] * 5
        channel.close()
    assert len(daemon.seen(Hello)) == 1


async def test_the_daemons_are_tried_in_turn_and_the_active_one_is_remembered(unused_tcp_port: int) -> None:
    async with StandIn().running() as standby, StandIn().running() as active:
        standby.responses[Hello] = responding(Refused(NOT_ACTIVE, "a standby"))
        active.responses[Leave] = responding(Left(0))
        daemons = Daemons([("127.0.0.1", unused_tcp_port), standby.address, active.address])
        for _ in range(2):
            channel = Channel(daemons)
            assert await channel.request(LEAVE, Left, 5) == Left(0)
            channel.close()
    assert len(standby.requests) == 1


@pytest.mark.parametrize("code", [NOT_ACTIVE, UNAUTHENTICATED])
async def test_a_daemon_that_is_not_active_any_more_or_has_another_secret_is_left(code: str) -> None:
    async with StandIn().running() as former, StandIn().running() as active:
        former.responses[Leave] = responding(Refused(code, "a standby"))
        active.responses[Leave] = responding(Left(0))
        channel = Channel(Daemons([former.address, active.address]))
        with pytest.raises(RequestRefused, match=rf"a standby \({code}\)"):
            await channel.request(LEAVE, Left, 5)
        assert await channel.request(LEAVE, Left, 5) == Left(0)
        channel.close()


async def test_without_a_daemon_the_causes_are_named(unused_tcp_port: int) -> None:
    async with StandIn().running() as refusing, StandIn().running() as newer:
        refusing.responses[Hello] = responding(Refused(NOT_ACTIVE, "a standby"))
        newer.responses[Hello] = responding(Welcome(2, 1))
        channel = Channel(Daemons([("127.0.0.1", unused_tcp_port), refusing.address, newer.address]))
        with pytest.raises(Unreachable) as caught:
            await channel.open()
    first, second, third = str(caught.value).split("; ")
    assert first.startswith(f"127.0.0.1:{unused_tcp_port}: ")
    assert second.endswith("a standby (not_active)")
    assert third.endswith("speaks no version of the protocol up to 1")


@pytest.mark.parametrize("code", [UNAUTHENTICATED, RESTORED])
async def test_a_wrong_secret_and_an_older_store_are_named_before_other_causes(unused_tcp_port: int, code: str) -> None:
    async with StandIn().running() as daemon:
        daemon.responses[Hello] = responding(Refused(code, "the daemon says so"))
        channel = Channel(Daemons([("127.0.0.1", unused_tcp_port), daemon.address, ("127.0.0.1", unused_tcp_port)]))
        with pytest.raises(RequestRefused) as caught:
            await channel.open()
        assert caught.value.code == code


def test_a_daemon_that_both_connections_of_a_server_leave_is_left_once() -> None:
    first, second = ("a", 1), ("b", 2)
    daemons = Daemons([first, second])
    daemons.served(first)
    daemons.leave(first)
    daemons.leave(first)
    assert daemons.in_turn() == (second, first)
    daemons.leave(second)
    assert daemons.in_turn() == (first, second)


def test_a_server_names_the_highest_token_that_it_was_ever_sent() -> None:
    daemons = Daemons([("a", 1)], proof=b"p" * 16)
    for batch in ([opens(1, 1, 9), opens(2, 2, 4)], [opens(3, 3, 5)], [closes(4, 1, 12)], []):
        daemons.sent(batch)
    assert daemons.hello.seen_token == 9


def test_a_list_without_daemons_is_refused() -> None:
    with pytest.raises(ValueError, match="name at least one"):
        Daemons([])


async def test_a_refusal_keeps_the_connection() -> None:
    async with StandIn().running() as daemon:
        daemon.responses[Leave] = responding(Refused(INVALID, "no such server"))
        channel = Channel(Daemons([daemon.address]))
        for _ in range(2):
            with pytest.raises(RequestRefused) as caught:
                await channel.request(LEAVE, Left, 5)
            assert caught.value.code == INVALID
        channel.close()
    assert len(daemon.seen(Hello)) == 1


async def test_a_late_response_closes_the_connection() -> None:
    async with StandIn().running() as daemon:
        late = asyncio.Event()

        async def respond(request: Request) -> Response:
            if len(daemon.seen(Leave)) == 1:
                await late.wait()
                return Left(9)
            return Left(0)

        daemon.responses[Leave] = respond
        channel = Channel(Daemons([daemon.address]))
        with pytest.raises(Unreachable, match=r"no response within 0\.05 s"):
            await channel.request(LEAVE, Left, 0.05)
        late.set()
        assert await channel.request(LEAVE, Left, 5) == Left(0)
        channel.close()


async def test_a_cancelled_request_closes_the_connection() -> None:
    async with StandIn().running() as daemon:
        late = asyncio.Event()

        async def respond(request: Request) -> Response:
            await late.wait()
            return Left(len(daemon.seen(Leave)))

        daemon.responses[Leave] = respond
        channel = Channel(Daemons([daemon.address]))
        request = asyncio.create_task(channel.request(LEAVE, Left, 5))
        await daemon.arrived(Leave)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        late.set()
        assert await channel.request(LEAVE, Left, 5) == Left(2)
        channel.close()


@pytest.mark.parametrize(
    ("response", "cause"),
    [
        (LENGTH.pack(-1), "a frame of -1 bytes"),
        (LENGTH.pack(0), "a frame of 0 bytes"),
        (LENGTH.pack(FRAME_BYTES_MAX + 1), f"a frame of {FRAME_BYTES_MAX + 1} bytes, at most {FRAME_BYTES_MAX}"),
        (LENGTH.pack(2) + b"\xc0\xc0", "no response: "),
        (LENGTH.pack(9) + b"\x90", "the connection was closed"),
        (encode(LEAVE), "no response: "),
        (encode(Welcome(1, 1)), "responded with Welcome to Leave"),
        (None, "the connection was closed"),
    ],
)
async def test_bytes_that_are_no_response_close_the_connection(response: bytes | None, cause: str) -> None:
    async with StandIn().running() as daemon:

        async def respond(request: Request) -> bytes | None:
            if response is not None and response.endswith(b"\x90"):
                asyncio.get_running_loop().call_soon(lambda: asyncio.get_running_loop().call_later(0.02, daemon.close))
            return response

        daemon.responses[Leave] = respond
        channel = Channel(Daemons([daemon.address]))
        with pytest.raises(Unreachable) as caught:
            await channel.request(LEAVE, Left, 5)
        assert cause in str(caught.value)
        daemon.responses[Leave] = responding(Left(0))
        assert await channel.request(LEAVE, Left, 5) == Left(0)
        channel.close()


@settings(max_examples=50)
@given(st.binary(max_size=64))
def test_hostile_bytes_are_never_more_than_a_lost_connection(hostile: bytes) -> None:
    async def run() -> None:
        async with StandIn().running() as daemon:
            daemon.responses[Leave] = responding(LENGTH.pack(len(hostile)) + hostile)
            channel = Channel(Daemons([daemon.address]))
            with pytest.raises((Unreachable, RequestRefused)):
                await channel.request(LEAVE, Regions, 5)  # type: ignore[type-var]  # no response of that kind exists
            channel.close()

    asyncio.run(run())


class TestLikelyCauses:
    """A connection that ends before any response says which setting to look at."""

    async def test_no_process_listens(self, unused_tcp_port: int) -> None:
        with pytest.raises(Unreachable, match=r"regions\.port, and without regions\.secret_file they listen on 127"):
            await Channel(Daemons([("127.0.0.1", unused_tcp_port)])).open()

    @pytest.mark.parametrize("response", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", encode(Left(1))])
    async def test_another_server_listens(self, response: bytes) -> None:
        async with _answering(response) as address:
            with pytest.raises(Unreachable, match=r"compare the port with the daemons' regions\.port, and TLS"):
                await Channel(Daemons([address])).open()

    async def test_the_other_side_is_without_tls(self) -> None:
        async with _answering(b"no TLS") as address:
            with pytest.raises(Unreachable, match=r"TLS on both sides with their security\.protocol"):
                await Channel(Daemons([address], tls=ssl.create_default_context())).open()

    async def test_a_daemon_is_silent(self) -> None:
        async with _answering(None) as address:
            with pytest.raises(Unreachable, match=r"no response within 0\.05 s .*regions\.port"):
                await Channel(Daemons([address], connect_ms_max=50)).open()


@asynccontextmanager
async def _answering(response: bytes | None) -> AsyncIterator[tuple[str, int]]:
    """Runs a server of another protocol, which sends the same bytes to each connection, or none at all."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if response is not None:
            writer.write(response)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[:2]
    finally:
        server.close()


class TestTls:
    async def test_a_connection_is_encrypted_and_the_daemon_verified(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(authority.signed("daemon"))
        trusting = ssl.create_default_context(cafile=authority.file)
        async with StandIn().running(tls=server) as daemon:
            daemon.responses[Leave] = responding(Left(0))
            channel = Channel(Daemons([daemon.address], tls=trusting))
            assert await channel.request(LEAVE, Left, 5) == Left(0)
            channel.close()
            strange = ssl.create_default_context(cafile=Authority(tmp_path, "another").file)
            with pytest.raises(Unreachable, match="certificate verify failed"):
                await Channel(Daemons([daemon.address], tls=strange)).open()


class TestBackoff:
    def test_pauses_double_up_to_a_bound(self) -> None:
        backoff = Backoff(50, 400, jitter=lambda: 1.0)
        assert [backoff.pause_s() for _ in range(5)] == [0.05, 0.1, 0.2, 0.4, 0.4]
        backoff.reset()
        assert backoff.pause_s() == 0.05

    def test_half_of_a_pause_is_random(self) -> None:
        assert Backoff(100, 100, jitter=lambda: 0.0).pause_s() == 0.05


def responding(response: Response | bytes) -> Respond:
    async def respond(request: Request) -> Response | bytes:
        return response

    return respond
