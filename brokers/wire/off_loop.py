"""Reads and writes large messages on one thread beside the event loop, which meanwhile watches the lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

LARGE_BYTES: Final = 32_768
"""A message up to this size takes the loop some tens of milliseconds at most, whatever its content."""

_thread: Final = ThreadPoolExecutor(1, "reader")


async def run_off_loop(work: Callable[[], T], size: int) -> T:
    """Runs ``work`` on a message of ``size`` bytes, on the thread if that is large, and returns the result.

    A cancellation leaves running work to end by itself: the bounds of a message limit it.
    """
    if size <= LARGE_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_thread, work)
