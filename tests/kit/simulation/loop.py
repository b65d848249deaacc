"""Runs several processes in one event loop on virtual time: no selector, no thread, no real clock.

The order of handles depends on earlier calls alone. Timers of one instant run in the order in which they were set.
Tasks and cancel scopes have numbers as their hashes, because sets of them are iterated.

A process is a value in the context that every handle carries. To freeze a process parks its handles. To kill it drops
them: not even its ``finally`` blocks run, as with ``kill -9``.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, TypeVarTuple, Unpack
from unittest import mock

from anyio._backends import _asyncio as anyio_backend

Ts = TypeVarTuple("Ts")

HANDLES_PER_INSTANT_MAX = 20_000
"""Handles at one instant; more of them mean that a task spins without end."""

REFUSALS_PER_TURN_MAX = 1_000


class Spinning(BaseException):
    """Ends a task that would not yield by itself; the run is over."""


class Life(Enum):
    """States of a process. STALLED: only the loop stands still (a long computation). FROZEN: SIGSTOP."""

    RUNNING = 0
    STALLED = 1
    FROZEN = 2
    DEAD = 3


class Process:
    """Owns everything that is started in its context, which lives and dies with it."""

    def __init__(self, loop: SimLoop, name: str) -> None:
        self.name = name
        self.life = Life.RUNNING
        self.halts = 0
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)
        self._loop = loop
        self._parked: list[asyncio.Handle] = []
        self._thread: list[Callable[[], object]] = []

    @property
    def alive(self) -> bool:
        """Returns whether the process may run again."""
        return self.life is not Life.DEAD

    def start(self, work: Coroutine[Any, Any, None], name: str | None = None) -> None:
        """Starts a task of this process."""
        self._loop.kept.append(self._loop.create_task(work, name=name, context=self.context.copy()))

    def call_soon(self, call: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
        """Calls back on the process's loop."""
        self._loop.call_soon(call, *args, context=self.context)

    def call_at(self, when: float, call: Callable[[Unpack[Ts]], object], *args: *Ts) -> asyncio.TimerHandle:
        """Calls back on the process's loop at a time."""
        return self._loop.call_at(when, call, *args, context=self.context)

    def on_thread(self, call: Callable[[], object]) -> None:
        """Runs a call as a thread of the process: at once, also while its loop is stalled; later if it is frozen."""
        if self.life in (Life.RUNNING, Life.STALLED):
            self.context.copy().run(call)
        elif self.alive:
            self._thread.append(call)

    def halt(self, life: Life) -> None:
        """Stops the loop: SIGSTOP, or a stall."""
        if self.alive:
            self.life = life
            self.halts += 1

    def resume(self) -> None:
        """Resumes the loop with everything that it has missed, then the threads, which might come first as well."""
        if self.life in (Life.FROZEN, Life.STALLED):
            self.life = Life.RUNNING
            parked, self._parked = self._parked, []
            self._loop.ready.extend(parked)
            thread, self._thread = self._thread, []
            for call in thread:
                self._loop.call_soon(self.on_thread, call)

    def kill(self) -> None:
        """Kills the process with kill -9."""
        self.life = Life.DEAD
        self._parked.clear()
        self._thread.clear()

    def park(self, handle: asyncio.Handle) -> None:
        """Keeps a handle that cannot run now."""
        if self.alive:
            self._parked.append(handle)


PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)

_numbers = itertools.count(1)
"""Hashes of one run; each loop begins them anew."""


class SimTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._number = next(_numbers)
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._number


class SimScope(anyio_backend.CancelScope):
    """A cancel scope whose place in a set does not depend on its address."""

    __slots__ = ("_number",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._number = next(_numbers)
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._number


def _new_task(loop: Any, work: Any, **options: Any) -> asyncio.Task[Any]:
    return SimTask(work, loop=loop, **options)


async def _closed(agen: AsyncGenerator[Any, Any]) -> None:
    await agen.aclose()


class SimLoop(asyncio.BaseEventLoop):
    """Runs until :meth:`stop`, or until no handle and no timer is left."""

    def __init__(self) -> None:
        global _numbers  # noqa: PLW0603  # of the loop that runs: there is one at a time
        super().__init__()
        _numbers = itertools.count(1)
        self.now_s = 0.0
        self.handled = 0
        self.spun: Callable[[int], None] = lambda _: None
        """Receives the number of handles of a task that spins."""
        self._at_instant = 0
        self._turned_away = 0, 0
        self.ready: deque[asyncio.Handle] = deque()
        self.kept: list[asyncio.Task[None]] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._sequence = itertools.count()
        self._spinning: list[asyncio.Handle] = []
        self._halted = False
        self.root = contextvars.Context()
        """The context outside of every process: the network, the ensemble, the script."""
        self.set_task_factory(_new_task)

    # -- the interface that asyncio requires

    def time(self) -> float:
        """Returns the virtual seconds since the run began."""
        return self.now_s

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Appends a handle to the ready ones."""
        handle = asyncio.Handle(callback, args, self, context)
        if getattr(callback, "__func__", None) is _SPINS:
            self._spinning.append(handle)
        else:
            self.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Sets a timer; those of one instant run in the order in which they were set."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._sequence), timer))
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Sets a timer after a delay."""
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def _asyncgen_finalizer_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        """Closes an abandoned generator in a task; its process may be killed before that task runs."""
        self.call_soon(lambda: self.kept.append(self.create_task(_closed(agen))))

    # -- running

    def turned_away(self) -> None:
        """Counts a request that was refused at once: a task that repeats it in one turn never yields to the loop."""
        turn, times = self._turned_away
        self._turned_away = self.handled, times + 1 if turn == self.handled else 1
        if self._turned_away[1] > REFUSALS_PER_TURN_MAX:
            self.spun(self._turned_away[1])
            raise Spinning

    def halt(self) -> None:
        """Ends the run after the present handle."""
        self._halted = True

    def _run_once(self) -> None:
        """Runs everything until the run ends: ready handles, then those that spin, then the next timer."""
        ready, timers, fresh = self.ready, self._timers, False
        while not self._halted:
            if ready:
                self._run_handle(ready.popleft())
                fresh = True
            elif self._spinning and fresh:
                spinning, self._spinning, fresh = self._spinning, [], False
                for handle in spinning:
                    self._run_handle(handle)
            elif timers:
                when, _, timer = heapq.heappop(timers)
                if not timer._cancelled:
                    if when > self.now_s:
                        self.now_s, self._at_instant = when, self.handled
                    ready.append(timer)
            else:
                break
        self._halted = False
        self._stopping = True

    def _run_handle(self, handle: asyncio.Handle) -> None:
        if handle._cancelled:
            return
        process = handle._context.get(PROCESS)  # type: ignore[attr-defined]
        if process is not None and process.life is not Life.RUNNING:
            process.park(handle)
            return
        self.handled += 1
        if self.handled - self._at_instant > HANDLES_PER_INSTANT_MAX:
            self.spun(self.handled - self._at_instant)
        handle._run()


_SPINS = anyio_backend.CancelScope._deliver_cancellation
"""anyio repeats this in every turn of the loop until the cancelled task is gone: it must not keep time from passing."""


@contextmanager
def deterministic_scopes() -> Iterator[None]:
    """Makes anyio's cancel scopes with numbers."""
    with mock.patch.object(anyio_backend, "CancelScope", SimScope):
        yield
