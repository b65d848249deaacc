"""Reads large messages on one thread beside the loop: the loop turns meanwhile, and watches the lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

LARGE_BYTES: Final = 32_768
"""A message up to this size takes the loop some tens of milliseconds at most, whatever is in it."""

_thread: Final = ThreadPoolExecutor(1, "reader")


async def beside(work: Callable[[], T], size: int) -> T:
    """The result of ``work`` on a message of ``size`` bytes: made at once, or in its turn on the thread if it is large.

    Cancelled, it leaves work that has begun to end by itself: that is bounded by what a message may hold.
    """
    if size <= LARGE_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_thread, work)
