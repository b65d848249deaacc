"""Ends a long-running process: no thread that still prepares something delays it after its last line."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable


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
