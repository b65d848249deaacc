"""The HTTP surface over TCP: reads with credentials; strangers and slow clients stay off the daemon's loop."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.client import HTTPResponse
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import httpx
import pytest

from brokers.security.authentication import SecurityUnusable
from configs.connections import HttpSettings
from configs.values import Address
from controller.domain import create_app
from controller.http import remote, tcp
from controller.http.remote import TokenUnusable
from controller.http.tcp import AddressUnusable, serving_remotely
from controller.kafka.metrics.exposition import KafkaCollector
from controller.kafka.metrics.values import Counters
from controller.kafka.term.dispatch import KAFKA_STATES
from controller.metrics import registry
from tests.kit.answering import Answering
from tests.kit.certificates import Authority
from tests.kit.deadlines import eventually
from tests.unit.controller.http.test_http import hanging

TOKEN = "0123456789abcdef-of-the-scrape"
HALF, WHOLE = b"GET /metrics HTTP/1.1\r\nHost: localhost", b"GET /liveness HTTP/1.1\r\nHost: localhost\r\n\r\n"
READING = ("/metrics", "/v1/status", "/v1/brokers", "/v1/partitions", "/v1/verification")


@asynccontextmanager
async def surface(view: Answering | None = None, **settings: Any) -> AsyncIterator[Address]:
    """Serves a double on a free port of this machine."""
    view = view or Answering()
    metrics = registry(KafkaCollector(Counters(), view, KAFKA_STATES))
    app = create_app([view], metrics)
    async with serving_remotely(app, HttpSettings(address="127.0.0.1:0", **settings)) as bound:
        assert bound is not None
        yield bound


def client(at: Address, verify: ssl.SSLContext | bool = False, token: str = "") -> httpx.AsyncClient:
    scheme = "https" if isinstance(verify, ssl.SSLContext) else "http"
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return httpx.AsyncClient(base_url=f"{scheme}://{at.host}:{at.port}", verify=verify, headers=headers, timeout=60)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o640)
    return path


def rewrite(file: Path, text: str, mode: int = 0o600) -> None:
    file.write_text(text)
    file.chmod(mode)


def close_to_others(file: Path) -> None:
    file.chmod(0o640)


async def refuses(error: type[OSError], match: str, **settings: Any) -> None:
    """Asserts that the surface does not start."""
    with pytest.raises(error, match=match):
        async with surface(**settings):
            raise AssertionError("served")


@contextmanager
def connections(at: Address, count: int, *sources: str, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    """Opens ``count`` connections from each of ``sources``, which send nothing but ``sent``."""
    made = [socket.create_connection(at, 5, (source, 0)) for source in sources or ("127.0.0.1",) for _ in range(count)]
    for connection in made:
        connection.sendall(sent)
    try:
        yield made
    finally:
        for connection in made:
            connection.close()


async def closed(connection: socket.socket) -> bool:
    """Returns whether the other side has closed it."""
    connection.setblocking(False)
    try:
        return connection.recv(65_536) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


async def test_without_an_address_nothing_listens() -> None:
    async with serving_remotely(create_app([Answering()], mock.Mock()), HttpSettings()) as bound:
        assert bound is None


FOREIGN = ["evil.example", "evil.example:9097", "127.0.0.1.evil.example", "localhost.evil.example", "[evil]:80", "::1x"]
OWN = [
    "127.0.0.1",
    "127.0.0.1:9097",
    "localhost",
    "LOCALHOST:9097",
    "localhost.",
    "regent.localhost:80",
    "[::1]",
    "[::1]:9097",
]


@pytest.mark.parametrize("host", FOREIGN)
async def test_a_page_whose_name_was_given_the_address_of_this_machine_reads_nothing(host: str) -> None:
    """A browser on this machine sends the page's name as Host, and would hand the response to the page."""
    async with surface() as at, client(at) as http:
        for path in (*READING, "/liveness", "/v1/regions", "/openapi.json"):
            response = await http.get(path, headers={"host": host})
            assert response.status_code == 403, path
            assert f"Host: {host!r} is a name" in response.json()["message"]


@pytest.mark.parametrize("host", OWN)
async def test_addresses_and_localhost_are_read_without_credentials(host: str) -> None:
    async with surface() as at, client(at) as http:
        assert (await http.get("/metrics", headers={"host": host})).status_code == 200


async def test_with_a_token_any_name_may_lead_here(token_file: Path) -> None:
    async with surface(token_file=token_file) as at, client(at, token=TOKEN) as http:
        assert (await http.get("/metrics", headers={"host": "regent.example"})).status_code == 200


async def test_on_loopback_each_document_is_read_without_credentials() -> None:
    async with surface() as at, client(at) as http:
        for path in (*READING, "/liveness", "/readiness"):
            assert (await http.get(path)).status_code == 200, path
        assert (await http.get("/v1/topics/nothing")).status_code == 404
        assert "regent_role" in (await http.get("/metrics")).text


async def test_a_change_is_refused_before_it_reaches_the_daemon(token_file: Path) -> None:
    view = Answering()
    async with surface(view, token_file=token_file) as at, client(at, token=TOKEN) as http:
        for path in ("/v1/role/takeover", "/v1/role/handback"):
            assert (await http.post(path, json={"reason": "mine"})).status_code == 405
        assert (await http.delete("/v1/topics/orders")).status_code == 405
        assert (await http.request("GET", "/v1/status", content=b"x")).status_code == 413
    assert view.calls == []


async def test_without_the_token_only_short_probes_are_served(token_file: Path) -> None:
    view = Answering()
    view.ready = False
    async with surface(view, token_file=token_file) as at:
        for wrong in ("", "x" * 20, TOKEN[:-1], TOKEN + "x"):
            async with client(at, token=wrong) as http:
                for path in (*READING, "/openapi.json", "/liveness/../v1/status"):
                    refused = await http.get(path)
                    assert refused.status_code in (401, 404), path
                    assert TOKEN not in refused.text
                assert (await http.get("/liveness")).json() == {"ok": True}
                ready = await http.get("/readiness")
                assert (ready.status_code, ready.json()) == (503, {"ok": False}), "nothing of the cluster"
        async with client(at, token=TOKEN) as http:
            assert (await http.get("/metrics")).status_code == 200
            assert (await http.get("/readiness")).json()["why"] == "waits for ZooKeeper"


async def test_a_changed_token_is_read_again_and_an_unusable_one_changes_nothing(token_file: Path) -> None:
    async with surface(token_file=token_file) as at:
        rewrite(token_file, "fedcba9876543210-and-more\n")
        async with client(at, token="fedcba9876543210-and-more") as http:
            assert (await http.get("/metrics")).status_code == 200
            rewrite(token_file, "fedcba9876543210-and-less\n", 0o666)
            assert (await http.get("/metrics")).status_code == 200
            rewrite(token_file, "")
            assert (await http.get("/metrics")).status_code == 200
        async with client(at, token=TOKEN) as http:
            assert (await http.get("/metrics")).status_code == 401


async def test_a_token_is_read_once_its_file_is_closed_to_others(token_file: Path) -> None:
    """The remedy of the line in the log, chmod, changes no content."""
    async with surface(token_file=token_file) as at, client(at, token="fedcba9876543210-and-more") as http:
        rewrite(token_file, "fedcba9876543210-and-more\n", 0o666)
        assert (await http.get("/metrics")).status_code == 401
        close_to_others(token_file)
        assert (await http.get("/metrics")).status_code == 200


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o602])
async def test_a_token_that_others_read_or_change_is_refused_at_the_start(token_file: Path, mode: int) -> None:
    rewrite(token_file, TOKEN, mode)
    await refuses(TokenUnusable, rf"{token_file}.*{mode:o}.*chmod 640", token_file=token_file)


@pytest.mark.parametrize("text", ["", "short\n", "with a space in it\n", "two-lines-of-token\ntwo-lines-of-token\n"])
async def test_a_file_without_a_token_is_refused_at_the_start(token_file: Path, text: str) -> None:
    rewrite(token_file, text)
    remedy = "or name another file$" if text else f"openssl rand -hex 32 > {token_file}$"  # no content is lost
    await refuses(TokenUnusable, rf"holds no token.*{remedy}", token_file=token_file)


async def test_missing_files_are_named(tmp_path: Path) -> None:
    await refuses(TokenUnusable, "gone", token_file=tmp_path / "gone")
    await refuses(SecurityUnusable, r"gone\.pem", certificate_file=tmp_path / "gone.pem")


async def test_an_address_that_is_in_use_is_named() -> None:
    async with surface() as at:
        with pytest.raises(AddressUnusable, match=rf"http.address 127.0.0.1:{at.port}.*Remedy"):
            async with serving_remotely(mock.Mock(), HttpSettings(address=f"127.0.0.1:{at.port}")):
                raise AssertionError("served")


@pytest.mark.parametrize("with_token", [True, False])
async def test_a_certificate_of_the_named_authority_replaces_the_token(
    tmp_path: Path, token_file: Path, with_token: bool
) -> None:
    servers, clients = Authority(tmp_path / "servers"), Authority(tmp_path / "clients")
    plain, certified, foreign = (ssl.create_default_context(cafile=servers.file) for _ in range(3))
    certified.load_cert_chain(clients.signed("prometheus"))
    foreign.load_cert_chain(servers.signed("stranger"))
    settings: Any = {"certificate_file": servers.signed("daemon"), "client_ca_file": clients.file}
    settings |= {"token_file": token_file} if with_token else {}
    async with surface(**settings) as at:
        for context, token, code in (
            (certified, "", 200),
            (plain, "", 401),
            (plain, TOKEN, 200 if with_token else 401),
        ):
            async with client(at, context, token) as http:
                assert {(await http.get(path)).status_code for path in READING} == {code}
                assert (await http.get("/liveness")).status_code == 200
        for refused in (foreign, False):
            with pytest.raises(httpx.TransportError):
                async with client(at, refused, TOKEN) as http:
                    await http.get("/metrics")


CROWDS = {
    "from elsewhere": ("127.0.0.2", "127.0.0.3"),
    "from the scrape's address": ("127.0.0.1",),
    "from everywhere": ("127.0.0.1", "127.0.0.2", "127.0.0.3"),
}


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nHost: a\r\n"], ids=["silent", "half a request"])
@pytest.mark.parametrize("sources", CROWDS.values(), ids=CROWDS)
async def test_connections_without_a_whole_request_give_way_to_a_scrape(sources: tuple[str, ...], sent: bytes) -> None:
    """They are not cut off by the time-out, which is longer than this test."""
    with mock.patch.object(tcp, "KEEP_ALIVE_S", 600):
        async with surface() as at:
            with connections(at, tcp.CONNECTIONS_MAX, *sources, sent=sent) as made:
                async with client(at) as http:
                    assert (await http.get("/metrics")).status_code == 200
                await eventually(lambda: closed(made[0]))
                assert not await closed(made[-1])


@pytest.mark.parametrize("sources", CROWDS.values(), ids=CROWDS)
async def test_connections_without_a_handshake_give_way_to_a_scrape(
    tmp_path: Path, token_file: Path, sources: tuple[str, ...]
) -> None:
    """Connections count before their handshake, which none of these begins."""
    authority = Authority(tmp_path / "authority")
    trusting = ssl.create_default_context(cafile=authority.file)
    with mock.patch.object(tcp, "HANDSHAKE_MS_MAX", 600_000):
        async with surface(certificate_file=authority.signed("daemon"), token_file=token_file) as at:
            with connections(at, tcp.CONNECTIONS_MAX, *sources) as made:
                async with client(at, trusting, TOKEN) as http:
                    assert (await http.get("/metrics")).status_code == 200
                await eventually(lambda: closed(made[0]))
                assert await count_open(made) <= tcp.CONNECTIONS_MAX


async def test_a_scrape_keeps_its_connection_during_a_crowd(token_file: Path) -> None:
    with mock.patch.object(tcp, "KEEP_ALIVE_S", 600):
        async with surface(token_file=token_file) as at, client(at, token=TOKEN) as http:
            before = own_port(await http.get("/metrics"))
            with connections(at, 2 * tcp.CONNECTIONS_MAX, "127.0.0.1", "127.0.0.2", "127.0.0.3") as made:
                await eventually(lambda: at_most_open(made, tcp.CONNECTIONS_MAX - 1))
                assert own_port(await http.get("/metrics")) == before


@pytest.mark.parametrize("path", ["/liveness", "/metrics"])
async def test_requests_without_credentials_keep_no_slot(token_file: Path, path: str) -> None:
    with mock.patch.object(tcp, "KEEP_ALIVE_S", 600):
        async with surface(token_file=token_file) as at:
            with connections(
                at, tcp.PER_ADDRESS_MAX, sent=f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
            ) as made:
                for connection in made:
                    assert await asyncio.to_thread(connection.recv, 12) in (b"HTTP/1.1 200", b"HTTP/1.1 401")
                async with client(at, token=TOKEN) as http:
                    assert (await http.get("/metrics")).status_code == 200


async def test_a_newcomer_is_refused_and_logged_while_authorized_clients_hold_all_slots(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with mock.patch.object(tcp, "KEEP_ALIVE_S", 600):
        async with surface() as at:
            request = b"GET /liveness HTTP/1.1\r\nHost: localhost\r\n\r\n"
            with connections(at, tcp.PER_ADDRESS_MAX, sent=request) as made:
                for connection in made:
                    assert await asyncio.to_thread(connection.recv, 12) == b"HTTP/1.1 200"
                with connections(at, 3) as refused:
                    await eventually(lambda: at_most_open(refused, 0))
                assert not await closed_after_response(made[0])
                async with client_from("127.0.0.2", at) as http:
                    assert (await http.get("/metrics")).status_code == 200
    [line] = [record.getMessage() for record in caplog.records if "is refused" in record.getMessage()]
    assert "from 127.0.0.1" in line


def own_port(response: httpx.Response) -> int:
    """Returns the client's port of the connection of a response."""
    assert response.status_code == 200
    port: int = response.extensions["network_stream"].get_extra_info("client_addr")[1]
    return port


def client_from(source: str, at: Address) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(local_address=source)
    return httpx.AsyncClient(base_url=f"http://{at.host}:{at.port}", transport=transport, timeout=60)


async def count_open(made: list[socket.socket]) -> int:
    return len(made) - sum([await closed(connection) for connection in made])


async def at_most_open(made: list[socket.socket], most: int) -> bool:
    return await count_open(made) <= most


async def closed_after_response(connection: socket.socket) -> bool:
    """Returns whether it is closed, once the rest of its response is read."""
    return await closed(connection) or await closed(connection)


async def all_closed(made: list[socket.socket]) -> bool:
    return await count_open(made) == 0


async def responds(http: httpx.AsyncClient) -> bool:
    try:
        return (await http.get("/liveness")).status_code == 200
    except httpx.TransportError:
        return False


async def test_slots_are_free_again_after_handshakes_that_never_end(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    with mock.patch.object(tcp, "HANDSHAKE_MS_MAX", 200):
        async with surface(certificate_file=authority.signed("daemon")) as at:
            with connections(at, tcp.PER_ADDRESS_MAX) as made:
                await eventually(lambda: all_closed(made))
                async with client(at, ssl.create_default_context(cafile=authority.file)) as http:
                    await eventually(lambda: responds(http))


@pytest.mark.parametrize("begun", [b"", HALF, WHOLE, WHOLE + HALF], ids=["nothing", "half", "whole", "one and a half"])
async def test_a_client_that_sends_no_further_request_is_cut_off(begun: bytes) -> None:
    with mock.patch.object(tcp, "KEEP_ALIVE_S", 0.2):
        async with surface() as at:
            with connections(at, 1) as [connection]:
                connection.sendall(begun)
                await eventually(lambda: closed(connection))


async def test_a_client_that_begins_a_further_request_after_a_response_is_cut_off() -> None:
    with mock.patch.object(tcp, "KEEP_ALIVE_S", 2):
        async with surface() as at:
            with connections(at, 1, sent=WHOLE) as [connection]:
                assert await asyncio.to_thread(connection.recv, 12) == b"HTTP/1.1 200"
                connection.sendall(HALF)
                await eventually(lambda: closed(connection))


async def test_a_connection_in_use_outlives_the_deadlines_of_its_earlier_requests() -> None:
    with mock.patch.object(tcp, "KEEP_ALIVE_S", 4):
        async with surface() as at:
            with connections(at, 1) as [connection]:
                ends_s = time.monotonic() + 5
                while time.monotonic() < ends_s:
                    connection.sendall(WHOLE)
                    assert await asyncio.to_thread(_status, connection) == 200


def _status(connection: socket.socket) -> int:
    """Reads a whole response; returns its status."""
    response = HTTPResponse(connection)
    response.begin()
    response.read()
    return response.status


async def test_a_huge_header_or_garbage_is_refused_without_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with surface() as at:
        with connections(at, 1) as [connection]:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 4 * tcp.HEADER_BYTES_MAX)
            await eventually(lambda: closed(connection))
        with connections(at, 1) as [connection]:
            connection.sendall(b"\x16\x03\x01 no HTTP\r\n\r\n")
            await eventually(lambda: closed(connection))
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []


async def test_few_requests_at_a_time_reach_the_daemons_loop() -> None:
    at_once = most = 0
    may_end = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await may_end.wait()
        at_once -= 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    async with serving_remotely(app, HttpSettings(address="127.0.0.1:0")) as at:
        assert at is not None
        async with client(at) as http:
            requests = [asyncio.create_task(http.get("/metrics")) for _ in range(3 * remote.AT_A_TIME_MAX)]
            await eventually(lambda: reached(lambda: most))
            may_end.set()
            assert {response.status_code for response in await asyncio.gather(*requests)} == {200}
    assert most == remote.AT_A_TIME_MAX


async def reached(most: Any) -> bool:
    return bool(most() == remote.AT_A_TIME_MAX)


async def test_a_request_that_takes_too_long_ends_with_an_error() -> None:
    view, _ = hanging()
    with mock.patch.object(remote, "REQUEST_S_MAX", 0.2):
        async with surface(view) as at, client(at) as http:
            response = await http.get("/v1/verification")
            assert (response.status_code, response.json()["remedy"]) == (503, "try again, or use http.socket")


async def test_requests_that_took_too_long_hold_up_no_later_one() -> None:
    view, may_end = hanging()
    async with surface(view) as at, client(at) as http:
        with mock.patch.object(remote, "REQUEST_S_MAX", 0.1):
            for _ in range(remote.AT_A_TIME_MAX + 1):
                response = await http.get("/v1/verification")
                assert (response.status_code, response.json()["remedy"]) == (503, "try again, or use http.socket")
        may_end.set()
        assert (await http.get("/v1/verification")).status_code == 200


async def test_connections_that_have_ended_hold_no_slot(token_file: Path) -> None:
    async with surface(token_file=token_file) as at:
        for _ in range(tcp.PER_ADDRESS_MAX + 2):
            async with client(at, token=TOKEN) as http:
                assert (await http.get("/metrics")).status_code == 200


async def test_probes_of_strangers_take_no_turn_of_clients_with_credentials(token_file: Path) -> None:
    probes, may_end = 0, asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal probes
        if scope["path"] == "/liveness":
            probes += 1
            await may_end.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    async with serving_remotely(app, HttpSettings(address="127.0.0.1:0", token_file=token_file)) as at:
        assert at is not None
        async with client(at) as stranger, client(at, token=TOKEN) as scraper:
            waiting = [asyncio.create_task(stranger.get("/liveness")) for _ in range(2 * remote.AT_A_TIME_MAX)]
            await eventually(lambda: probes > 0)
            assert (await scraper.get("/metrics")).status_code == 200
            assert probes == remote.PROBES_AT_A_TIME_MAX
            may_end.set()
            assert {one.status_code for one in await asyncio.gather(*waiting)} == {200}


async def test_a_failure_of_the_daemon_is_a_response_with_its_traceback_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with surface(Answering({"whole.status": RuntimeError("no model yet")})) as at, client(at) as http:
        assert (await http.get("/v1/status")).status_code == 500
    assert any(record.exc_info for record in caplog.records)


async def test_the_end_does_not_wait_for_clients() -> None:
    view, _ = hanging()
    async with asyncio.timeout(30), surface(view) as at:
        with connections(at, 1) as [connection]:
            connection.sendall(b"GET /v1/verification HTTP/1.1\r\nHost: localhost\r\n\r\n")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(at).close()


async def test_a_token_of_another_user_is_refused(token_file: Path) -> None:
    found = SimpleNamespace(st_mode=0o100640, st_uid=4_242)
    with mock.patch("controller.http.remote.os.fstat", return_value=found):
        await refuses(TokenUnusable, r"owner 4242\): give it to the daemon's user, chown \d+ ", token_file=token_file)
