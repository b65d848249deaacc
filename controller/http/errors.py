"""Declares the errors of requests, each with the status of its response and a remedy."""

from __future__ import annotations

from typing import ClassVar


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


class Refused(ViewError):
    """A valid request that a safety check forbids."""

    status = 409


class NotActive(ViewError):
    """A request that needs a model, at a daemon that does not hold the role."""

    status = 503
