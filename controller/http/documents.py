"""Makes the responses of the HTTP surface: documents of items, and errors with their cause, status and remedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from controller.http.models import Document, ErrorBody, Item

SEE_OPENAPI: Final = "see /openapi.json"
CORRECT: Final = "correct it; --help has the options of a command, /openapi.json the form of each request"
Unknown = Callable[[str], tuple[str, str]]
"""Returns message and remedy for a path that does not exist."""
OWN: Final = "Value error, "
"""Begin of the text of a check that is no one of pydantic."""


class ViewError(Exception):
    """A request that fails. ``remedy`` would make it succeed."""

    status: ClassVar[int] = 500

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class Invalid(ViewError):
    """A request with a field that cannot be; the text names field and value."""

    status = 400


class NotFound(ViewError):
    """A request for a broker, topic or partition that does not exist."""

    status = 404


class ViewRefused(ViewError):
    """A valid request that a safety check forbids."""

    status = 409


class NotActive(ViewError):
    """A request that needs a model, at a daemon that does not hold the role."""

    status = 503


def respond(body: Item, status: int = 200) -> Response:
    """Returns a response with one item as its body."""
    content = body.model_dump_json(by_alias=True, exclude_none=True)
    return Response(content, status, media_type="application/json")


def document(kind: str, items: Sequence[Item], following: str | None = None, stale: str | None = None) -> Response:
    """Returns the response that lists items. ``following``: begin of the next page; ``stale``: why it may be old."""
    return respond(Document[Item].model_construct(kind=kind, items=list(items), next=following, stale=stale))


def no_path(path: str) -> tuple[str, str]:
    """Returns message and remedy for a path that no daemon has."""
    return f"this daemon has no path {path}", SEE_OPENAPI


def add_errors(app: FastAPI, unknown: Unknown = no_path) -> None:
    """Adds the responses to failed requests."""

    @app.exception_handler(ViewError)
    async def refused(_request: Request, error: ViewError) -> Response:
        return respond(ErrorBody(message=error.message, remedy=error.remedy), error.status)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> Response:
        found = "; ".join(map(_problem, error.errors()))
        return respond(ErrorBody(message=f"invalid request: {found}", remedy=CORRECT), 400)

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        path = request.url.path
        message, remedy = unknown(path) if error.status_code == 404 else (str(error.detail), SEE_OPENAPI)
        return respond(ErrorBody(message=message, remedy=remedy), error.status_code)

    @app.exception_handler(Exception)
    async def failed(_request: Request, error: Exception) -> Response:
        message = f"the daemon failed to answer: {type(error).__name__}"
        return respond(ErrorBody(message=message, remedy="the daemon's log has the traceback"), 500)


def _problem(found: dict[str, Any]) -> str:
    """Words one fault of a request; a check of our own names the field itself."""
    text, place = str(found["msg"]), ".".join(map(str, found["loc"]))
    if found["type"] == "too_long":
        count = len(found["input"])  # of a dictionary pydantic has no actual_length
        return f"{place} has {count:,} entries, at most {found['ctx']['max_length']:,} are possible"
    if found["type"] in ("enum", "literal_error"):
        named = next((str(part) for part in reversed(found["loc"]) if isinstance(part, str)), place)
        return f"{named} = {found['input']!r}: give {found['ctx']['expected']}"
    if found["type"] == "string_too_long":
        return f"{place} has {len(found['input']):,} characters, at most {found['ctx']['max_length']:,} are possible"
    return text.removeprefix(OWN) if text.startswith(OWN) and place == "body" else f"{place}: {text}"
