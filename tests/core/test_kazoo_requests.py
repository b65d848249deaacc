"""What the adapter gives to kazoo and sends by it: options of the client, logins, and requests at their bounds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from kazoo.exceptions import AuthFailedError, ConnectionDropped
from kazoo.protocol.serialization import SASL, Connect

from metadata_store.errors import Code, ConnectFailed, ZkError
from metadata_store.kazoo_adapter import KazooZooKeeper, jute, kazoo_client
from metadata_store.kazoo_adapter.adapter import SINGLE_READS_MAX
from metadata_store.kazoo_adapter.limits import CUT_BYTES, SUSPECT_BYTES, Limits
from metadata_store.kazoo_adapter.sasl_digest import DigestMd5
from metadata_store.kazoo_adapter.tls import ZooKeeperTls
from metadata_store.port import IN_FLIGHT_MAX, READ_PATHS_MAX, REQUEST_BYTES_MAX, WRITE_BYTES_MAX, Create, SetData
from tests.core.kazoo_kit import CONNECT_S, Header, Wire, adapter, no_thread, turns
from tests.core.virtual_time import in_exact_time

STAT = bytes(68)
PEM = ZooKeeperTls(Path("/ca.pem"), Path("/own.pem"), Path("/own.key"))
CHALLENGE = b'realm="zk-sasl-md5",nonce="n",qop="auth",algorithm=md5-sess,charset=utf-8'


# -- options


async def of_client(**options: Any) -> kazoo_client.Client:
    """Kazoo's client of a session with these options."""
    zk = KazooZooKeeper("a:1,b:2/kafka", **{"session_timeout_ms": 12_345, **options})
    async with no_thread():
        connecting = asyncio.ensure_future(zk.connect(CONNECT_S))
        await turns()
        client = Wire(zk).client
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
    return client


@in_exact_time
async def test_kazoo_is_given_the_servers_without_the_chroot_and_the_session_in_its_unit() -> None:
    client = await of_client()
    assert client.hosts == [("a", 1), ("b", 2)]
    assert client.chroot == ""
    assert client._session_timeout == 12_345, "in ms, as kazoo keeps it"
    assert (client.use_ssl, client.auth_data, client._connection.sasl_options) == (False, set(), None)


@in_exact_time
async def test_connections_are_tried_again_for_ever_with_short_pauses() -> None:
    retry = (await of_client())._connection.retry_sleeper
    assert (retry.max_tries, retry.delay, retry.max_delay) == (-1, 0.1, 1.0)


@in_exact_time
async def test_credentials_of_both_kinds_are_passed_on() -> None:
    client = await of_client(credentials="regent:s3cret", sasl="kafka:secret:with:colons")
    assert client.auth_data == {("digest", "regent:s3cret")}
    assert client.sasl == "kafka:secret:with:colons"
    assert client._connection.sasl_options == {}, "not None: kazoo logs in"


@pytest.mark.parametrize(
    ("tls", "given"),
    [
        (PEM, ("/ca.pem", "/own.pem", "/own.key", True)),
        (ZooKeeperTls(None, Path("/own.pem"), check_host=False), (None, "/own.pem", "/own.pem", False)),
        (ZooKeeperTls(), (None, None, None, True)),
    ],
)
@in_exact_time
async def test_tls_options_are_passed_on(tls: ZooKeeperTls, given: tuple[Any, ...]) -> None:
    client = await of_client(tls=tls)
    assert (client.ca, client.certfile, client.keyfile, client.check_hostname) == given
    assert (client.use_ssl, client.verify_certs, client.keyfile_password) == (True, True, "")


@pytest.mark.parametrize("wrong", [{"credentials": "nocolon"}, {"sasl": "nocolon"}])
def test_credentials_without_a_colon_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="user:password"):
        KazooZooKeeper("a:1", session_timeout_ms=1_000, **wrong)  # type: ignore[arg-type]


# -- the handshake


class Server:
    """Answers of a server to a login by SASL; ``tokens``: what it was sent, with the numbers of the requests."""

    def __init__(self, client: kazoo_client.Client, *answers: tuple[int, bytes] | ConnectionDropped) -> None:
        self.tokens: list[tuple[int, bytes]] = []
        self._answers = list(answers)
        self.connection = client._connection
        self.connection._submit = self._submit
        self.connection._read_header = self._read_header

    def _submit(self, request: SASL, _timeout: float, xid: int) -> None:
        self.tokens.append((xid, request.challenge))

    def _read_header(self, _timeout: float) -> tuple[Header, bytes, int]:
        answer = self._answers.pop(0)
        if isinstance(answer, ConnectionDropped):
            raise answer
        err, token = answer
        return Header(0, 0, err), jute.blob(token), 0

    def log_in(self) -> None:
        self.connection._authenticate_with_sasl("zk1", 1.0)


@in_exact_time
async def test_a_login_by_sasl_uses_user_and_password_up_to_the_first_colon_each_time() -> None:
    client = await of_client(sasl="kafka:a:b")
    with mock.patch("metadata_store.kazoo_adapter.kazoo_client.secrets.token_hex", return_value="c"):
        for _ in range(3):
            login = DigestMd5("kafka", "a:b", "c")
            response = login.respond(CHALLENGE)
            server = Server(client, (0, CHALLENGE), (0, b"rspauth=" + login._expected))
            server.log_in()
            assert server.tokens == [(1, b""), (2, response)]


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([(-115, b"")], r"refused the SASL login \(error -115\)"),
        ([(0, CHALLENGE), (-115, b"")], r"refused the SASL login \(error -115\)"),
        ([(0, CHALLENGE), (0, b"rspauth=00")], "has not proved that it knows the password"),
        ([(0, b'nonce="x"')], "not DIGEST-MD5"),
        ([ConnectionDropped()], "zk1 hung up at the SASL login"),
        ([(0, CHALLENGE), ConnectionDropped()], "zk1 hung up at the SASL login"),
    ],
)
@in_exact_time
async def test_a_login_by_sasl_that_fails_ends_the_session_and_says_why(answers: list[Any], words: str) -> None:
    client = await of_client(sasl="kafka:secret")
    with pytest.raises(AuthFailedError, match=words):
        Server(client, *answers).log_in()


@in_exact_time
async def test_a_server_has_the_time_of_an_attempt_for_its_answer_and_grants_the_session() -> None:
    """Of a session of 12.345 s with one server: 0.3 of it; of one of 40 s that it granted: 12 s."""
    client = await of_client()
    connection, timeouts = client._connection, []

    def invoked(_: Any, timeout: float, __: Any, ___: Any = None) -> Any:
        timeouts.append(timeout)
        return mock.Mock(time_out=granted_ms), 0

    client.servers.round([("a", "10.0.0.1", 1)])
    with mock.patch("kazoo.protocol.connection.ConnectionHandler._invoke", invoked):
        for granted_ms in (40_000, 6_000, 40_000):
            connection._invoke(99.0, Connect(0, 0, 1, 0, b"", False))
            assert client.granted_ms == granted_ms
        connection._invoke(1.0, Connect(0, 0, 1, 0, b"", False))
    assert timeouts == [pytest.approx(each) for each in (12.345 * 0.3, 12.0, 2.0, 1.0)]


@in_exact_time
async def test_a_tcp_connect_is_bounded_by_the_attempt() -> None:
    client = await of_client()
    with mock.patch("kazoo.handlers.threading.SequentialThreadingHandler.create_connection") as connect:
        for wanted, bound in [(99.0, 12.345 * 0.3), (1.0, 1.0)]:
            client.handler.create_connection(("10.0.0.1", 1), timeout=wanted, hostname="a")
            assert connect.call_args.kwargs == {"timeout": pytest.approx(bound), "hostname": "a"}


# -- requests at their bounds


def read_answer(count: int) -> bytes:
    """A MultiRead of znodes that do not exist."""
    return jute._HEAD_LEN.pack(-1, 0, Code.NO_NODE, Code.NO_NODE) * count


def paths_of(total: int) -> list[str]:
    """Paths that take ``total`` bytes in MultiReads, 10 000 each but the last."""
    each = 10_000 - jute.READ_OVERHEAD
    whole, rest = divmod(total, 10_000)
    return ["/" + "x" * (each - 1)] * whole + ["/" + "x" * (rest - jute.READ_OVERHEAD - 1)]


@pytest.mark.parametrize(
    ("paths", "counts"),
    [
        (["/a"] * READ_PATHS_MAX, [READ_PATHS_MAX]),
        (["/a"] * (READ_PATHS_MAX + 1), [READ_PATHS_MAX, 1]),
        (paths_of(REQUEST_BYTES_MAX), [53]),
        (paths_of(REQUEST_BYTES_MAX + 1), [52, 1]),
        ([*paths_of(REQUEST_BYTES_MAX), "/a"], [53, 1]),
    ],
)
@in_exact_time
async def test_reads_are_split_at_a_thousand_paths_and_half_a_mebibyte(paths: list[str], counts: list[int]) -> None:
    assert (READ_PATHS_MAX, REQUEST_BYTES_MAX) == (1_000, 524_288)
    async with adapter() as (zk, wire, _):
        for _ in range(2):
            wire.sent.clear()
            reading = asyncio.ensure_future(zk.read_many(paths))
            await turns()
            assert wire.write() == len(counts)
            for count in counts:
                wire.answer(read_answer(count))
            assert await reading == [Code.NO_NODE] * len(paths)
            assert [body.count(jute._HEAD_LEN.pack(jute.GET_DATA, 0, -1, 2)[:9]) for _, body in wire.sent] == counts
            assert {opcode for opcode, _ in wire.sent} == {jute.MULTI_READ}


@pytest.mark.parametrize(("multi_read", "most"), [(True, 4), (False, 1_000)])
@in_exact_time
async def test_no_more_reads_are_under_way_than_allowed(multi_read: bool, most: int) -> None:
    assert most == (IN_FLIGHT_MAX if multi_read else SINGLE_READS_MAX)
    async with adapter(multi_read=multi_read) as (zk, wire, _):
        reading = asyncio.ensure_future(zk.read_many(["/a"] * (most + 2), paths_max=1))
        await turns()
        body, err = (read_answer(1), 0) if multi_read else (b"", int(Code.NO_NODE))
        for under_way in (most, most, most):
            assert wire.write() == under_way
            wire.answer(body, err=err)
            await turns()
        while wire.write():
            wire.answer(body, err=err)
            await turns()
        assert await reading == [Code.NO_NODE] * (most + 2)


@in_exact_time
async def test_reads_and_watches_are_cut_smaller_while_the_server_hangs_up_at_large_requests() -> None:
    async with adapter() as (zk, wire, _):
        paths = ["/" + "x" * 985] * 100
        for limit, reads, watches in [(REQUEST_BYTES_MAX, 1, 1), (CUT_BYTES, 2, 2)]:
            if limit == CUT_BYTES:
                for _ in range(2):
                    zk.limits.unanswered(jute.MULTI_READ, 500_000, 0.1)
                    zk.limits.ended()
            assert zk.request_bytes_max == limit
            for request, count in [(zk.read_many(paths), reads), (zk.watch(data=paths, since_zxid=1), watches)]:
                wire.sent.clear()
                asked = asyncio.ensure_future(request)
                await turns()
                assert wire.write() == count
                assert all(len(body) <= limit + 64 for _, body in wire.sent)
                asked.cancel()
                await turns()
                while wire.client._pending:
                    wire.answer(err=Code.NO_NODE)
                await turns()


@in_exact_time
async def test_single_writes_up_to_a_million_bytes_are_sent_and_larger_ones_refused() -> None:
    assert WRITE_BYTES_MAX == 1_000_000
    async with adapter() as (zk, wire, _):
        around = len(jute.set_data(SetData("/a", b"", 0), "/a"))
        for make in (
            lambda size: zk.set("/a", b"x" * (size - around), 0),
            lambda size: zk.apply([SetData("/a", b"x" * (size - around - 18), 0)]),
            lambda size: zk.multi([SetData("/a", b"x" * (size - around - 18), 0)]),
        ):
            wire.sent.clear()
            with pytest.raises(ZkError) as refused:
                await make(WRITE_BYTES_MAX + 1)
            assert (refused.value.code, wire.sent) == (Code.TOO_BIG, [])
            asked = asyncio.ensure_future(make(WRITE_BYTES_MAX))
            await turns()
            assert wire.write() == 1
            assert [len(body) for _, body in wire.sent] == [WRITE_BYTES_MAX]
            wire.answer(jute._HEAD.pack(jute.SET_DATA, 0, 0) + STAT)
            await asked


@pytest.mark.parametrize(
    ("size", "under_way_s", "learned"),
    [
        (SUSPECT_BYTES, 0.1, False),
        (SUSPECT_BYTES + 1, 0.1, True),
        (200_000, 2.0, True),
        (200_000, 2.01, False),
    ],
)
def test_what_may_be_the_reason_of_an_end(size: int, under_way_s: float, learned: bool) -> None:
    assert SUSPECT_BYTES == 65_536
    limits = Limits(lambda: 0.0)
    for _ in range(2):
        limits.unanswered(jute.MULTI_READ, size, under_way_s)
        limits.ended()
    assert (limits.batch_bytes == 57_344) == learned


@pytest.mark.parametrize("again", [1, 2, 3])
def test_what_was_learned_is_forgotten_after_ten_minutes_each_time(again: int) -> None:
    now_s = [0.0]
    limits = Limits(lambda: now_s[0])
    for _ in range(again):
        for _ in range(2):
            assert limits.batch_bytes == REQUEST_BYTES_MAX
            limits.unanswered(jute.MULTI_READ, 200_000, 0.1)
            limits.ended()
        now_s[0] += 599.9
        assert limits.batch_bytes == CUT_BYTES
        now_s[0] += 0.1
        assert (limits.batch_bytes, limits.write_bytes) == (REQUEST_BYTES_MAX, WRITE_BYTES_MAX)


# -- MultiRead


@in_exact_time
async def test_each_connection_asks_its_server_once_whether_it_has_multi_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of an ensemble are upgraded one after the other, and back."""
    asked: list[tuple[Any, ...]] = []
    version = (3, 5)

    async def server_version(*at: Any) -> tuple[int, int]:
        asked.append(at)
        return version

    monkeypatch.setattr("metadata_store.kazoo_adapter.session.server_version", server_version)
    monkeypatch.setattr(kazoo_client.Client, "peer", ("10.0.0.1", 2181))
    async with adapter(multi_read=None) as (zk, wire, _):
        assert asked == [("10.0.0.1", 2181, None)]
        for opcode, release in [(jute.GET_DATA, (3, 6)), (jute.MULTI_READ, (3, 5)), (jute.GET_DATA, (3, 6))]:
            before = len(asked)
            for _ in range(2):
                wire.sent.clear()
                reading = asyncio.ensure_future(zk.read_many(["/a"]))
                await turns()
                wire.write()
                assert [sent for sent, _ in wire.sent] == [opcode]
                wire.answer(read_answer(1), err=0 if opcode == jute.MULTI_READ else int(Code.NO_NODE))
                assert await reading == [Code.NO_NODE]
            assert len(asked) <= before + 1
            version = release
            wire.enter("CONNECTING")
            wire.up()
            await turns()
        assert zk.peer == "10.0.0.1:2181"


# -- the chroot


def created() -> bytes:
    """Answer to a create."""
    return jute.text("/kafka/a") + STAT


@pytest.mark.parametrize("create_chroot", [True, False])
@in_exact_time
async def test_a_chroot_that_is_missing_is_made_or_named(create_chroot: bool) -> None:
    zk = KazooZooKeeper("a:1/kafka/a", session_timeout_ms=6_000, multi_read=True, create_chroot=create_chroot)
    wire = Wire(zk)
    async with no_thread():
        connecting = asyncio.ensure_future(zk.connect(CONNECT_S))
        await turns()
        wire.up()
        await turns()
        wire.write()
        assert wire.sent == [(jute.EXISTS, jute.read("/kafka/a"))]
        wire.answer(err=Code.NO_NODE)
        await turns()
        if not create_chroot:
            with pytest.raises(ConnectFailed, match="the chroot /kafka/a does not exist"):
                await connecting
            return
        for path, err in [("/kafka", int(Code.NODE_EXISTS)), ("/kafka/a", 0)]:
            wire.sent.clear()
            wire.write()
            assert wire.sent == [(jute.CREATE2, jute.create(Create(path, None), path, secured=False))]
            wire.answer(created(), err=err)
            await turns()
        await wire.answer_all()
        await connecting
