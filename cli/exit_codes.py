"""What the command's exit code says, and the failure that carries one."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Stable: scripts rely on them (``docs/operations.md``)."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    UNFINISHED = 4
    UNREACHABLE = 5
    NOT_AUTHORISED = 6
    DETACHED = 130


class Failure(Exception):
    """Ends the command: one sentence for people, what to do about it, and the exit code."""

    def __init__(self, code: Exit, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy
