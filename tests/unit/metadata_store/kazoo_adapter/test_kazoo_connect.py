"""How a connect of the adapter ends, the order and limits of its attempts, and what servers say of themselves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from kazoo.protocol.states import KeeperState

from metadata_store.acl import OPEN
from metadata_store.errors import Code, ConnectFailed, NotConnected
from metadata_store.kazoo_adapter import KazooZooKeeper, jute
from metadata_store.kazoo_adapter.adapter import answered_or_left
from metadata_store.kazoo_adapter.jute import Reply
from metadata_store.kazoo_adapter.kazoo_client import Client
from metadata_store.kazoo_adapter.servers import Address, Servers, parse_version, server_limits, server_version
from metadata_store.kazoo_adapter.session import REFUSED_S_MAX, split_chroot
from metadata_store.kazoo_adapter.transport import CLOSE_S_MAX
from metadata_store.port import ConnectionState, Create
from tests.kit.deadlines import in_exact_time, in_virtual_time, skip
from tests.kit.kafka.parts import Clock
from tests.kit.kazoo import CONNECT_S, STAT, connect, now_s, stuck, turns, unconnected

CONNECTED, LOST = ConnectionState.CONNECTED, ConnectionState.LOST
NO_SESSION = "no ZooKeeper of a:1 gave a session: is it running"


@in_exact_time
async def test_a_connect_is_given_up_at_its_time_out_and_may_be_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """18 s, and at most twice the 2 s of a close."""
    caplog.set_level(logging.DEBUG)
    async with unconnected() as (zk, wire, _):
        for _ in range(3):
            begun_s = now_s()
            with pytest.raises(ConnectFailed, match="no ZooKeeper of a:1 gave a session within 18 s"):
                await zk.connect(18.0)
            assert now_s() - begun_s == pytest.approx(18.0 + 2 * CLOSE_S_MAX, abs=0.05)
            assert zk.state is LOST
        assert stuck(caplog) == [logging.DEBUG] * 3, "the failed connect is an error of its own"
        await connect(wire)
        assert zk.state is CONNECTED


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (KeeperState.EXPIRED_SESSION, NO_SESSION),
        (KeeperState.CLOSED, NO_SESSION),
        (KeeperState.AUTH_FAILED, "ZooKeeper a:1: it refused the credentials"),
    ],
)
@in_exact_time
async def test_a_session_that_ends_before_it_begins_fails_the_connect_at_once(state: str, words: str) -> None:
    async with unconnected() as (zk, wire, recorded):
        for _ in range(3):
            begun_s = now_s()
            connecting = await wire.begin(zk.connect(CONNECT_S), sends=False)
            wire.enter(KeeperState.CONNECTING, state, KeeperState.CLOSED)
            with pytest.raises(ConnectFailed, match=words):
                await connecting
            assert (now_s(), zk.state, recorded.states) == (begun_s, LOST, [])
        await connect(wire)
        assert recorded.states == [CONNECTED]


@pytest.mark.parametrize(
    ("state", "words"),
    [(KeeperState.AUTH_FAILED, "refused the credentials"), (KeeperState.EXPIRED_SESSION, "dropped the connection")],
)
@in_exact_time
async def test_a_session_that_ends_right_after_it_began_fails_the_connect(state: str, words: str) -> None:
    async with unconnected() as (zk, wire, _):
        for _ in range(3):
            connecting = await wire.begin(zk.connect(CONNECT_S), sends=False)
            wire.up()
            wire.enter(state)
            with pytest.raises(ConnectFailed, match=words):
                await connecting
        await connect(wire)


@pytest.mark.parametrize(("refused_s", "words"), [(0.9, "refused the credentials"), (1.1, "dropped the connection")])
@in_exact_time
async def test_a_refused_sasl_login_is_awaited_for_a_second_after_the_connection_was_dropped(
    refused_s: float, words: str
) -> None:
    assert REFUSED_S_MAX == 1.0
    async with unconnected(sasl="u:p") as (zk, wire, _):
        connecting = await wire.begin(zk.connect(CONNECT_S), sends=False)
        wire.up()
        await turns()
        wire.enter(KeeperState.CONNECTING)
        loop = asyncio.get_running_loop()
        loop.call_later(refused_s, wire.enter, KeeperState.AUTH_FAILED, KeeperState.CLOSED)
        with pytest.raises(ConnectFailed, match=words):
            await connecting


@pytest.mark.parametrize(
    ("code", "words"),
    [(Code.SESSION_CLOSED_REQUIRE_SASL_AUTH, r"set zookeeper\.sasl_file"), (Code.NO_AUTH, "NO_AUTH at /")],
)
@in_exact_time
async def test_an_error_as_the_first_reply_fails_the_connect(code: Code, words: str) -> None:
    async with unconnected() as (zk, wire, _):
        connecting = await wire.begin(zk.connect(CONNECT_S), sends=False)
        wire.up()
        await turns()
        wire.write()
        wire.reply(err=code)
        with pytest.raises(Exception, match=words) as error:
            await connecting
        assert isinstance(error.value, ConnectFailed) == (code is not Code.NO_AUTH)
        assert zk.state is LOST


@pytest.mark.parametrize(
    ("response", "opcode", "words"),
    [
        (b"Zookeeper version: 3.8.4-9316c2a7a97e1666d8f4593f34dd6fc36ecc436c, built on 2024", jute.MULTI_READ, ""),
        (b"Zookeeper version: 3.10.0, built on", jute.MULTI_READ, ""),
        (b"Zookeeper version: 3.6.0, built on", jute.MULTI_READ, ""),
        (b"Zookeeper version: 3.5.9, built on", jute.GET_DATA, ""),
        (b"Zookeeper version: 3.4.14, built on", None, r"ZooKeeper 3\.4 is too old: 3\.5 or newer"),
        (b"srvr is not executed because it is not in the whitelist.\n", jute.GET_DATA, "4lw.commands.whitelist=srvr"),
        (b"", jute.GET_DATA, "4lw.commands.whitelist=srvr"),
    ],
)
@in_exact_time
async def test_the_release_of_the_server_decides_how_znodes_are_read(
    response: bytes, opcode: int | None, words: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def server_version(*_: object) -> tuple[int, int] | None:
        return parse_version(response)

    monkeypatch.setattr("metadata_store.kazoo_adapter.session.server_version", server_version)
    monkeypatch.setattr(Client, "peer", ("10.0.0.1", 2181))
    async with unconnected(multi_read=None) as (zk, wire, _):
        if opcode is None:
            with pytest.raises(ConnectFailed, match=words):
                await connect(wire)
            return
        await connect(wire)
        wire.sent.clear()
        asked = await wire.begin(zk.read_many(["/a"]))
        assert [sent for sent, _ in wire.sent] == [opcode]
        asked.cancel()
        assert words in caplog.text


@pytest.mark.parametrize("create_chroot", [True, False])
@in_exact_time
async def test_a_missing_chroot_is_created_or_named(create_chroot: bool) -> None:
    async with unconnected("a:1/kafka/a", create_chroot=create_chroot) as (zk, wire, _):
        connecting = await wire.begin(zk.connect(CONNECT_S), sends=False)
        wire.up()
        await turns()
        wire.write()
        assert wire.sent == [(jute.EXISTS, jute.read("/kafka/a"))]
        wire.reply(err=Code.NO_NODE)
        await turns()
        if not create_chroot:
            with pytest.raises(ConnectFailed, match="the chroot /kafka/a does not exist"):
                await connecting
            return
        for path, err in [("/kafka", int(Code.NODE_EXISTS)), ("/kafka/a", 0)]:
            wire.sent.clear()
            wire.write()
            assert wire.sent == [(jute.CREATE2, jute.create(Create(path, None), path, lambda _: OPEN))]
            wire.reply(jute.text(path) + STAT, err=err)
            await turns()
        await wire.reply_all()
        await connecting


def test_a_connect_string_is_split_into_hosts_and_chroot() -> None:
    assert split_chroot("a:1,b:2") == ("a:1,b:2", "")
    assert split_chroot("a:1,b:2/kafka/one/") == ("a:1,b:2", "/kafka/one")
    for bad in ("", "/kafka", "a:1/x//y"):
        with pytest.raises(ValueError, match="host:port"):
            split_chroot(bad)


@pytest.mark.parametrize("wrong", [{"credentials": "nocolon"}, {"sasl": "nocolon"}])
def test_credentials_without_a_colon_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="user:password"):
        KazooZooKeeper("a:1", session_timeout_ms=1_000, **wrong)  # type: ignore[arg-type]


A: Address = ("a", "10.0.0.1", 2181)
B: Address = ("b", "10.0.0.2", 2181)
C: Address = ("c", "10.0.0.3", 2181)
REPLY = Reply(0, 1, b"", 0)


def test_the_servers_that_failed_lately_are_tried_last() -> None:
    clock = Clock()
    servers = Servers(clock)
    assert servers.round([A, B, C]) == [A, B, C]
    servers.failed(*A[1:])
    clock.now_s += 1.0
    servers.failed(*B[1:])
    assert servers.round([B, A, C]) == [C, A, B]


@pytest.mark.parametrize("session_s", [4.0, 6.0, 18.0, 40.0])
def test_a_round_of_three_servers_fits_between_the_silence_and_the_end_of_the_lease(session_s: float) -> None:
    servers = Servers()
    servers.round([A, B, C])
    left_s = session_s * (0.8 - 1 / 6 - 1 / 3)
    unreachable = 1  # one of the two others
    assert unreachable * servers.attempt_s(session_s) < left_s


def test_a_single_server_has_the_longest_attempt_and_several_get_longer_with_each_round() -> None:
    servers = Servers()
    servers.round([A])
    assert servers.attempt_s(18.0) == pytest.approx(5.4)
    taken = []
    for _ in range(6):
        servers.round([A, B, C])
        taken.append(servers.attempt_s(18.0))
    assert taken == sorted(taken)
    assert taken[-1] == pytest.approx(5.4)
    servers.connected()
    servers.round([A, B, C])
    assert servers.attempt_s(18.0) == pytest.approx(1.5)


class Link:
    """A connection that was left or not."""

    def __init__(self) -> None:
        self.received = 0
        self.left = False
        self.answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def leave(self, silent_s: float) -> bool:
        self.left = True
        self.answer.set_exception(NotConnected("given up"))
        return True


@in_virtual_time
async def test_a_slow_server_that_replies_to_other_requests_is_not_left() -> None:
    link = Link()
    waiting = asyncio.create_task(answered_or_left(link, link.answer, 6.0))
    for _ in range(10):
        await asyncio.sleep(1.0)
        link.received += 1
    link.answer.set_result(REPLY)
    assert await waiting == REPLY
    assert not link.left


@in_virtual_time
async def test_a_server_is_not_left_for_replies_that_waited_while_this_process_stood_still() -> None:
    link = Link()
    waiting = asyncio.create_task(answered_or_left(link, link.answer, 6.0))
    await asyncio.sleep(0.1)
    skip(30.0)
    await asyncio.sleep(0.1)
    link.answer.set_result(REPLY)
    assert await waiting == REPLY
    assert not link.left


LONG = b"x" * 200_000


@asynccontextmanager
async def serving(response: bytes) -> AsyncIterator[int]:
    """Serves one response to every connection; yields the port."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(response)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("response", [LONG, LONG + b"\n", b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
async def test_a_server_that_is_not_zookeeper_has_no_version(response: bytes) -> None:
    async with serving(response) as port:
        assert await server_version("127.0.0.1", port) is None
        assert await server_limits("127.0.0.1", port) is None


async def test_a_zookeeper_server_has_a_version() -> None:
    async with serving(b"Zookeeper version: 3.8.4-abc, built on 2024\nLatency\n") as port:
        assert await server_version("127.0.0.1", port) == (3, 8)
