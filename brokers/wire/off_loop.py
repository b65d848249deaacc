"""Reads large messages on one thread beside the event loop, which goes on meanwhile and watches the lease."""

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
    """Returns the result of ``work`` on a message of ``size`` bytes: done at once, or on the thread if it is large.

    A cancellation leaves running work to end by itself: the bounds of a message limit it.
    """
    if size <= LARGE_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_thread, work)
