"""The HTTP surface over TCP: valid credentials, refusals before a body is read, and responses to clients."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from controller.http.peers import CERTIFIED, SLOT, ChangeGuard
from controller.http.remote import BearerToken, Remote

TOKEN = "a-token-of-this-test"


class Slot:
    """A slot of a connection, which counts its authenticated requests."""

    def __init__(self) -> None:
        self.proven = 0

    def prove(self) -> None:
        self.proven += 1


class Daemon:
    """An application that notes its requests; its response has headers of its own."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.paths.append(scope["path"])
        status = 503 if scope["path"] == "/readiness" else 200
        headers = [(b"content-type", b"text/of-the-test"), (b"content-length", b"5"), (b"x-more", b"1")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"ab", "more_body": True})
        await send({"type": "http.response.body", "body": b"cde"})


@pytest.fixture
def token(tmp_path: Path) -> BearerToken:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    return BearerToken(file, None)


async def requested(
    token: BearerToken | None, method: str, path: str, headers: dict[str, str], *, certified: bool = False
) -> tuple[httpx.Response, list[str], int]:
    """Sends a request; returns its response, the paths that reached the daemon, and how often the slot was proven."""
    daemon, slot = Daemon(), Slot()
    remote = Remote(daemon, asyncio.get_running_loop(), token, open_to_all=False)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await remote({**scope, "state": {CERTIFIED: certified, SLOT: slot}}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://regent") as client:
        return await client.request(method, path, headers=headers), daemon.paths, slot.proven


@pytest.mark.parametrize(
    ("given", "certified", "known"),
    [
        (f"Bearer {TOKEN}", False, True),
        (f"bearer {TOKEN}", False, True),
        (f"BEARER  {TOKEN} ", False, True),
        (f"Basic  {TOKEN}", False, False),
        (f"Token  {TOKEN}", False, False),
        (TOKEN, False, False),
        (f"Bearer {TOKEN[:-1]}", False, False),
        (f"Bearer {TOKEN}x", False, False),
        ("", False, False),
        ("", True, True),
        ("Bearer of another", True, True),
    ],
)
async def test_a_token_behind_its_scheme_or_a_certificate_lets_a_client_read(
    token: BearerToken, given: str, certified: bool, known: bool
) -> None:
    headers = {"authorization": given} if given else {}
    response, paths, proven = await requested(token, "GET", "/metrics", headers, certified=certified)
    assert (response.status_code, paths, proven) == ((200, ["/metrics"], 1) if known else (401, [], 0))
    assert response.headers.get("www-authenticate") == (None if known else "Bearer")
    alone, _, _ = await requested(None, "GET", "/metrics", headers, certified=certified)
    assert alone.status_code == (200 if certified else 401), "without a token none fits"


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {}, 200),
        ("HEAD", {}, 200),
        ("GET", {"content-length": "0"}, 200),
        ("GET", {"content-length": "1"}, 413),
        ("GET", {"transfer-encoding": "chunked"}, 413),
        ("GET", {"content-length": "0", "transfer-encoding": "chunked"}, 413),
        ("OPTIONS", {}, 405),
        ("POST", {}, 405),
    ],
)
async def test_what_is_no_read_without_a_body_is_refused_also_with_credentials(
    token: BearerToken, method: str, headers: dict[str, Any], status: int
) -> None:
    given = {"authorization": f"Bearer {TOKEN}", **headers}
    response, paths, _ = await requested(token, method, "/metrics", given)
    assert (response.status_code, bool(paths)) == (status, status == 200)


async def test_a_response_has_the_status_and_headers_of_the_daemon_and_a_probe_of_a_stranger_its_status_alone(
    token: BearerToken,
) -> None:
    known = {"authorization": f"Bearer {TOKEN}"}
    for path, status in (("/metrics", 200), ("/readiness", 503), ("/liveness", 200)):
        response, _, _ = await requested(token, "GET", path, known)
        assert (response.status_code, response.text) == (status, "abcde")
        assert response.headers.multi_items() == [
            ("content-type", "text/of-the-test"), ("x-more", "1"), ("content-length", "5"),
        ]  # fmt: skip
    for path, status in (("/readiness", 503), ("/liveness", 200)):
        response, paths, proven = await requested(token, "GET", path, {})
        assert (response.status_code, response.json()) == (status, {"ok": status == 200})
        assert "x-more" not in response.headers
        assert (paths, proven) == ([path], 0), "it holds no slot that clients with credentials need"


@pytest.mark.parametrize(
    ("path", "length", "status"),
    [
        ("/v1/x", b"2", 200),
        ("/v1/a\nb", b"2", 400),
        ("/v1/x", b"1048576", 200),
        ("/v1/x", b"1048577", 413),
        ("/v1/x", b"-1", 413),
        ("/v1/x", b"", 413),
        ("/v1/x", None, 413),
    ],
)
async def test_a_change_with_another_path_or_length_is_refused_before_its_body_is_read(
    path: str, length: bytes | None, status: int
) -> None:
    daemon, statuses = Daemon(), list[int]()
    headers = [] if length is None else [(b"content-length", length)]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "client": ("uid:7", 1)}

    async def receive() -> Any:
        raise AssertionError("the body is read")

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await ChangeGuard(daemon, owner=7)(scope, receive, send)
    assert (statuses, bool(daemon.paths)) == ([status], status == 200)
