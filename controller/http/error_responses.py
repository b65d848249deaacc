"""Has failed requests get their cause and remedy, in one shape."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from controller.http.documents import respond
from controller.http.models import ErrorBody
from controller.http.ports import ViewError

SEE_OPENAPI: Final = "see /openapi.json"
OWN: Final = "Value error, "
"""Begin of the text of a check that is no one of pydantic."""


def add_errors(app: FastAPI, unknown_path: str = SEE_OPENAPI) -> None:
    """Adds the responses to failed requests. ``unknown_path``: remedy for a path that does not exist."""

    @app.exception_handler(ViewError)
    async def refused(_request: Request, error: ViewError) -> Response:
        return respond(ErrorBody(message=error.message, remedy=error.remedy), error.status)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> Response:
        found = "; ".join(map(_problem, error.errors()))
        return respond(ErrorBody(message=f"invalid request: {found}", remedy=SEE_OPENAPI), 400)

    @app.exception_handler(HTTPException)
    async def other(_request: Request, error: HTTPException) -> Response:
        remedy = unknown_path if error.status_code == 404 else SEE_OPENAPI
        return respond(ErrorBody(message=str(error.detail), remedy=remedy), error.status_code)

    @app.exception_handler(Exception)
    async def failed(_request: Request, error: Exception) -> Response:
        message = f"the daemon failed to answer: {type(error).__name__}"
        return respond(ErrorBody(message=message, remedy="the daemon's log has the traceback"), 500)


def _problem(found: dict[str, Any]) -> str:
    """Words one fault of a request; a check of our own names the field itself."""
    text, place = str(found["msg"]), ".".join(map(str, found["loc"]))
    return text.removeprefix(OWN) if text.startswith(OWN) and place == "body" else f"{place}: {text}"
