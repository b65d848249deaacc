"""Queries the daemon over its unix socket. Responses are plain JSON, so a newer daemon's fields pass through."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import httpx

from cli.exit_codes import Exit, Failure
from cli.quoting import quoted

PAGE: Final = 1_000
CODES: Final = {
    400: Exit.USAGE,
    403: Exit.NOT_AUTHORISED,
    404: Exit.FAILED,
    409: Exit.REFUSED,
    413: Exit.USAGE,
    422: Exit.USAGE,
    503: Exit.UNREACHABLE,
}

Json = dict[str, Any]


OF_REGIONS: Final = "/v1/regions"
"""Begin of paths of the regions' domain, whose daemon need not be one of Kafka and ZooKeeper."""


def partition_path(topic: str, partition: int) -> str:
    """Returns the path of a partition."""
    return f"{topic_path(topic)}/partitions/{partition}"


def topic_path(topic: str) -> str:
    """Returns the path of a topic, its name quoted."""
    return f"/v1/topics/{quoted(topic)}"


def _opened_by(socket: Path) -> str:
    """Returns which user may open a socket. A folder that is closed to this user is named with its owner."""
    closed = next((folder for folder in reversed(socket.parents) if not os.access(folder, os.X_OK)), None)
    if closed is None:
        return "run the command as root, or as a member of the socket's group"
    found = closed.stat()
    mode = stat.S_IMODE(found.st_mode)
    return (
        f"{closed} is closed to you (uid {found.st_uid}, gid {found.st_gid}, mode {mode:04o}): run the command as root "
        "or as a member of that group; if a daemon that runs as the user regent shall listen there, give the folder "
        f"to it (chown regent:regent {closed})"
    )


class Client:
    """Client of a daemon at a unix socket. Every method raises :class:`cli.exit_codes.Failure` with its exit code.

    ``warn`` receives warnings about a response.
    """

    def __init__(self, socket: Path, timeout_s: float, warn: Callable[[str], None] = lambda _: None) -> None:
        self._socket = socket
        self._warn = warn
        self._stale = ""
        self._timeout_s = timeout_s
        transport = httpx.HTTPTransport(uds=str(socket))
        self._http = httpx.Client(transport=transport, base_url="http://regent", timeout=timeout_s)

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Json:
        """Returns one document; warns once where it may be old."""
        body = self._checked(self._send("GET", path, params=params))
        if (stale := str(body.get("stale", ""))) and not self._stale:
            self._warn(f"this may be old, the daemon answers from memory: {stale}")
            self._stale = stale
        return body

    def post(self, path: str, body: Json) -> Json:
        """Requests a change; returns the response's document."""
        return self._checked(self._send("POST", path, json=body))

    def pages(self, path: str, params: Mapping[str, Any] | None = None) -> Iterator[Json]:
        """Yields the items of a long list, page by page."""
        query = {"limit": PAGE, **(params or {})}
        while True:
            page = self.get(path, query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def probe(self, path: str) -> Json:
        """Returns a probe's response, whether the daemon is well or not."""
        answer = self._send("GET", path)
        return self._decoded(answer) if answer.status_code == 503 else self._checked(answer)

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            return self._http.request(method, path, **request)
        except httpx.TimeoutException:
            raise Failure(
                Exit.UNREACHABLE,
                f"the daemon at {self._socket} did not answer within {self._timeout_s:g} s",
                "give it longer with --request-timeout; if it stays silent, see its log (journalctl -u regent)",
            ) from None
        except httpx.TransportError as error:
            raise self._unreachable(error, path) from None

    def _unreachable(self, error: Exception, path: str) -> Failure:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, OSError):
            cause = cause.__cause__ or cause.__context__
        if isinstance(cause, PermissionError):
            return Failure(Exit.NOT_AUTHORISED, f"no permission to open {self._socket}", _opened_by(self._socket))
        if isinstance(cause, FileNotFoundError):
            message = f"no daemon listens on {self._socket}: there is no such socket"
        elif isinstance(cause, ConnectionRefusedError):
            message = f"no daemon listens on {self._socket}: the daemon that made this socket is gone"
        else:
            message = f"the daemon at {self._socket} broke the connection: {cause or error}"
        remedy = "see `systemctl status regent`; another socket is named by --server, REGENT_SERVER or http.socket; "
        if path.startswith(OF_REGIONS):
            remedy += "`journalctl -u regent` has why the daemon ended"
        else:
            remedy += "`regent preflight` reads the holder of the role in ZooKeeper without a daemon"
        return Failure(Exit.UNREACHABLE, message, remedy)

    def _checked(self, answer: httpx.Response) -> Json:
        body = self._decoded(answer)
        if answer.is_success:
            return body
        code = CODES.get(answer.status_code, Exit.FAILED)
        raise Failure(code, str(body.get("message", answer.status_code)), str(body.get("remedy", "")))

    def _decoded(self, answer: httpx.Response) -> Json:
        try:
            body = answer.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            remedy = "is the socket another program's? See --server and http.socket"
            raise Failure(Exit.FAILED, f"{self._socket} answered with something that is not regent's", remedy)
        return body
