"""Serves requests over TCP: reads by clients with credentials; probes without credentials get a short response.

Permitted requests run on the daemon's own loop, few at a time; all others end before they reach that loop. The bearer
token is read from a file, and again after the file has changed.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from brokers.rate_limited_log import RateLimitedLog
from configs.daemon_user import ROOT
from controller.http.models import ErrorBody
from controller.http.peers import CERTIFIED, SLOT
from controller.process.wording import shown

log = logging.getLogger("regent.http")

BYTES_MAX: Final = 1_002
_TOKEN: Final = re.compile(rb"[!-~]{16,1000}")
_OTHERS: Final = 0o027
"""Mode bits that a token's file must not have: reading by others, writing by group or others."""
_SCHEME: Final = b"bearer "

_Stamp = tuple[int, int, int, int]
METHODS: Final = frozenset({"GET", "HEAD"})
PROBES: Final = frozenset({"/liveness", "/readiness"})
AT_A_TIME_MAX: Final = 4
"""Requests with credentials that the daemon's loop works on at a time; further ones wait."""
PROBES_AT_A_TIME_MAX: Final = 1
"""The same for probes without credentials: no request with credentials waits for one of them."""
REQUEST_S_MAX: Final = 60.0


class TokenUnusable(OSError):
    """A file that cannot serve as a token; the text names cause and remedy."""


class BearerToken:
    """The token in ``path``, which root or the daemon's ``user`` (None: any user) must own.

    While the file is unusable, the token read before stays in force.
    """

    def __init__(self, path: Path, user: int | None) -> None:
        self._path = path
        self._user = user
        self._stamp = _stamp(path)
        self._digest = _read(path, user)

    def allows(self, authorization: bytes) -> bool:
        """Returns whether a header ``Authorization`` has the token, in a time that does not depend on the token."""
        self._renew()
        scheme, given = authorization[: len(_SCHEME)], authorization[len(_SCHEME) :]
        same = hmac.compare_digest(sha256(given.strip()).digest(), self._digest)
        return same and scheme.lower() == _SCHEME

    def _renew(self) -> None:
        if (stamp := _stamp(self._path)) == self._stamp:
            return
        self._stamp = stamp
        try:
            self._digest = _read(self._path, self._user)
        except TokenUnusable as error:
            log.warning("the token that was read before stays in force: %s", error)
        else:
            log.info("the token for http.address was read again from %s", self._path)


def _read(path: Path, user: int | None) -> bytes:
    """Reads the token and returns its digest; raises :class:`TokenUnusable`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            found, text = os.fstat(descriptor), file.read(BYTES_MAX)
    except OSError as error:
        raise TokenUnusable(
            f"http.token_file {path} cannot be read ({error.strerror or error}): name a file that the daemon's user "
            "may read"
        ) from error
    if found.st_mode & _OTHERS:
        raise TokenUnusable(
            f"http.token_file {path} may be read or changed by others (mode {found.st_mode & 0o7777:o}): "
            f"chmod 640 {path}"
        )
    if user is not None and found.st_uid not in (ROOT, user):
        raise TokenUnusable(
            f"http.token_file {path} may be changed by others (owner {found.st_uid}): give it to the daemon's user, "
            f"chown {user} {path}"
        )
    token = text.removesuffix(b"\n")
    if not _TOKEN.fullmatch(token):
        example = "or name another file" if token else f"for example by openssl rand -hex 32 > {path}"
        raise TokenUnusable(
            f"http.token_file {path} holds no token: write one line of 16 to 1000 characters without spaces, {example}"
        )
    return sha256(token).digest()


def _stamp(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode


class WholeResponse(Struct, frozen=True):
    """A whole response."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Remote:
    """The surface for TCP clients. ``loop`` runs ``app``; ``token`` is None without tokens.

    ``open_to_all``: every client may read, because the address is a loopback address without credentials.
    """

    def __init__(
        self, app: ASGIApp, loop: asyncio.AbstractEventLoop, token: BearerToken | None, *, open_to_all: bool
    ) -> None:
        self._app = app
        self._loop = loop
        self._limited_log = RateLimitedLog()
        self._token = token
        self._open_to_all = open_to_all
        self._turns = asyncio.Semaphore(AT_A_TIME_MAX)
        self._probe_turns = asyncio.Semaphore(PROBES_AT_A_TIME_MAX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request, on the loop of the TCP surface."""
        headers = Headers(scope=scope)
        known = self._open_to_all or self._knows(scope, headers)
        foreign = self._open_to_all and not is_of_this_machine(headers.get("host", ""))
        response = _refusal(scope, headers, known) or (_foreign(headers["host"]) if foreign else None)
        if response is None:
            if known:
                scope["state"][SLOT].prove()
            whole = await self._whole_response(scope, receive, self._turns if known else self._probe_turns)
            response = _forwarded(whole if known else _short(whole))
        await response(scope, receive, send)

    def _knows(self, scope: Scope, headers: Headers) -> bool:
        given = headers.get("authorization", "").encode("latin-1")
        return bool(scope["state"].get(CERTIFIED)) or (self._token is not None and self._token.allows(given))

    async def _whole_response(self, scope: Scope, receive: Receive, turns: asyncio.Semaphore) -> WholeResponse:
        """Returns the daemon's response, or an error after ``REQUEST_S_MAX``."""
        try:
            async with asyncio.timeout(REQUEST_S_MAX) as until, _turn(turns, receive, until):
                working = asyncio.run_coroutine_threadsafe(_whole(self._app, scope, self._limited_log), self._loop)
                return await asyncio.wrap_future(working)
        except TimeoutError:
            body = _error(f"not answered within {REQUEST_S_MAX:g} s", "try again, or use http.socket")
            return WholeResponse(503, [(b"content-type", b"application/json")], body)


@asynccontextmanager
async def _turn(turns: asyncio.Semaphore, receive: Receive, until: asyncio.Timeout) -> AsyncIterator[None]:
    """Waits for a turn on the daemon's loop. A client that is gone stops waiting, so connections bound the waiters.

    A turn lasts to the end of its request: that loop has the request, and may be behind.
    """
    leaving = asyncio.create_task(_end_when_gone(receive, until))
    try:
        await turns.acquire()
    finally:
        leaving.cancel()
    try:
        yield
    finally:
        turns.release()


async def _end_when_gone(receive: Receive, until: asyncio.Timeout) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    until.reschedule(asyncio.get_running_loop().time())


async def _whole(app: ASGIApp, scope: Scope, limited_log: RateLimitedLog) -> WholeResponse:
    """Runs the application on the daemon's loop, and returns its whole response."""
    status, headers, parts = 500, list[tuple[bytes, bytes]](), list[bytes]()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], message["headers"]
        else:
            parts.append(message.get("body", b""))

    try:
        await app(scope, receive, send)
    except Exception as error:  # the application has sent its response, which names the log
        limited_log.error(log, "request", f"a request over TCP failed: {scope['path']}", error)
    return WholeResponse(status, headers, b"".join(parts))


def _refusal(scope: Scope, headers: Headers, known: bool) -> Response | None:
    if scope["method"] not in METHODS:
        return _refused(405, f"{scope['method']} changes nothing here", "use the regent command on the daemon's host")
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        return _refused(413, "a request with a body is not read", "send none")
    if not known and scope["path"] not in PROBES:
        remedy = "send Authorization: Bearer with the token of http.token_file, or a certificate of http.client_ca_file"
        return _refused(401, "credentials are missing or wrong", remedy)
    return None


def is_of_this_machine(host: str) -> bool:
    """Checks whether a header ``Host`` has an address, localhost or nothing.

    A name that another one resolves to this machine is that of a page which a browser here shows: it must not read.
    """
    name, _, port = host.rpartition(":")
    name = (host if not name or not port.isdigit() else name).removeprefix("[").removesuffix("]").rstrip(".").lower()
    if name in ("", "localhost") or name.endswith(".localhost"):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _foreign(host: str) -> Response:
    remedy = "use an IP address or localhost, or set http.certificate_file and http.token_file"
    return _refused(403, f"Host: {shown(host)} is a name, and http.address has no credentials", remedy)


def _refused(status: int, message: str, remedy: str) -> Response:
    headers = {"www-authenticate": "Bearer"} if status == 401 else None
    return Response(_error(message, remedy), status, headers, media_type="application/json")


def _error(message: str, remedy: str) -> bytes:
    return ErrorBody(message=message, remedy=remedy).model_dump_json(by_alias=True).encode()


def _short(whole: WholeResponse) -> WholeResponse:
    """Returns a probe's response for clients without credentials: yes or no, and nothing of the cluster."""
    body = json.dumps({"ok": whole.status == 200}).encode()
    return WholeResponse(whole.status, [(b"content-type", b"application/json")], body)


def _forwarded(whole: WholeResponse) -> Response:
    response = Response(whole.body, whole.status)
    kept = [(name, value) for name, value in whole.headers if name != b"content-length"]
    response.raw_headers = [*kept, (b"content-length", str(len(whole.body)).encode())]
    return response
