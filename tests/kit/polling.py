"""Waits for a condition with a deadline instead of a sleep."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, overload

T = TypeVar("T")
POLL_S = 0.02


@overload
async def eventually(check: Callable[[], Coroutine[Any, Any, T]], within_s: float = 10.0) -> T: ...


@overload
async def eventually(check: Callable[[], T], within_s: float = 10.0) -> T: ...


async def eventually(check: Callable[[], Any], within_s: float = 10.0) -> Any:
    """Calls ``check`` until it returns something true, and returns that.

    While time is left an AssertionError counts as "not yet"; at the deadline the last one is raised, so a check may
    be written as plain asserts followed by ``return True``. Other exceptions end the wait at once.
    """
    deadline = time.monotonic() + within_s
    while True:
        last: AssertionError | None = None
        seen: Any = None
        try:
            seen = check()
            if inspect.isawaitable(seen):
                seen = await asyncio.wait_for(seen, max(0.1, deadline - time.monotonic()))
            if seen:
                return seen
        except TimeoutError:
            seen = "no answer"
        except AssertionError as error:
            last = error
        if time.monotonic() >= deadline:
            raise last or AssertionError(f"not within {within_s:g} s: {inspect.getsource(check).strip()} -> {seen!r}")
        await asyncio.sleep(POLL_S)
