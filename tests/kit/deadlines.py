"""Waits for a condition with a deadline instead of a sleep, or on a loop whose clock jumps to the next timer."""

from __future__ import annotations

import asyncio
import functools
import heapq
import inspect
import time
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar, overload

T = TypeVar("T")
POLL_S = 0.02
WITHIN_S = 60.0
"""Longest wait for what a machine with much else to do gets to late; less than the limit of a test."""


@overload
async def eventually(check: Callable[[], Coroutine[Any, Any, T]], within_s: float = WITHIN_S) -> T: ...


@overload
async def eventually(check: Callable[[], T], within_s: float = WITHIN_S) -> T: ...


async def eventually(check: Callable[[], Any], within_s: float = WITHIN_S) -> Any:
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


P = ParamSpec("P")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Sockets stay real: while one has something to say, no time passes. Threads must not be waited for.

    ``turns`` counts the turns of the loop: what has nothing to do must not turn it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._skipped_s = 0.0
        self.turns = 0

    def time(self) -> float:
        """Real time and what was skipped."""
        return super().time() + self._skipped_s

    def _run_once(self) -> None:
        timers: list[Any] = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0]._cancelled:
            self._timer_cancelled_count -= 1  # type: ignore[attr-defined]
            heapq.heappop(timers)._scheduled = False
        idle = not self._ready and not self._selector.select(0)  # type: ignore[attr-defined]
        if idle and timers:
            self._skipped_s += max(0.0, timers[0]._when - self.time())
        self.turns += 1
        super()._run_once()  # type: ignore[misc]

    def skip(self, seconds: float) -> None:
        """Passes time during which the process stood still."""
        self._skipped_s += seconds


class ExactTimeLoop(VirtualTimeLoop):
    """Timers alone move this clock, so measured pauses are exact on a busy machine, too; for tests without sockets."""

    def time(self) -> float:
        """What was skipped."""
        return self._skipped_s


def skip(seconds: float) -> None:
    """Passes time on the running loop, during which the process stood still."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.skip(seconds)


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Runs an async test on a loop of its own."""
    return _on(VirtualTimeLoop, test)


def in_exact_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Runs an async test on a loop of its own whose clock timers alone move."""
    return _on(ExactTimeLoop, test)


def _on(loop: type[VirtualTimeLoop], test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        with asyncio.Runner(loop_factory=loop) as runner:
            return runner.run(test(*args, **kwargs))

    return run
