"""Restricts changes to root and the daemon's own user, before a request's body is read."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from controller.http.models import ErrorBody
from controller.http.peers import uid_of
from controller.process.texts import text_problem

READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
BODY_BYTES_MAX: Final = 1_048_576
"""Bytes of a request's body: a reassign plan of some thousand moves."""


class ChangeGuard:
    """Refuses large bodies, names with control characters, and changes by other peers than root and ``owner``."""

    def __init__(self, app: ASGIApp, owner: int) -> None:
        self._app = app
        self._owner = owner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves or refuses one request."""
        refusal = self._refusal(scope) if scope["type"] == "http" and scope["method"] not in READING else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        uid = uid_of(scope.get("client"))
        if uid is None or uid not in (0, self._owner):
            user = "an unknown user" if uid is None else f"user {uid}"
            remedy = f"run the command as root, or as user {self._owner} (the daemon's)"
            return _refused(403, f"{user} may read, but not change anything", remedy)
        if (problem := text_problem("path", scope["path"])) is not None:
            return _refused(400, problem, "see /openapi.json")
        length = Headers(scope=scope).get("content-length", "")
        if not (length.isascii() and length.isdigit()) or int(length) > BODY_BYTES_MAX:
            remedy = f"send at most {BODY_BYTES_MAX} bytes, with their length"
            return _refused(413, f"a body of {length or 'unknown'} bytes is not read", remedy)
        return None


def _refused(status: int, message: str, remedy: str) -> Response:
    body = ErrorBody(message=message, remedy=remedy).model_dump_json(by_alias=True)
    return Response(body, status, media_type="application/json")
