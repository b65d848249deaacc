"""Defines the exit codes of the command, and the failure that carries one."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes; stable, because scripts rely on them (``docs/reference/cli.md``)."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    UNFINISHED = 4
    UNREACHABLE = 5
    NOT_AUTHORISED = 6
    DETACHED = 130


class Failure(Exception):
    """End of the command: one sentence for people, its remedy, and the exit code."""

    def __init__(self, code: Exit, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy


def ends_at_once(work: Callable[[], int]) -> int:
    """Runs ``work`` and marks the process as done after it; returns the exit code."""
    code = work()
    _done.set()
    return code


def leave(code: object) -> None:
    """Ends the process without waiting for its threads, where :func:`ends_at_once` has returned."""
    if _done.is_set():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0)


_done = threading.Event()
