"""Says how far a job is while it works: now and then a line with what is done, how quickly, and the expected rest.

A job names its phases, and the tasks of a phase count what they have done. Where nobody listens, nothing is counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, NamedTuple


class Phase(NamedTuple):
    """A phase of a job that is done in tasks, such as Phase("judging", "buckets", (1, 1), (9_000, 4_000)).

    ``units``: how many of ``of`` each task has. ``sizes``: the rows or bytes of each task; the rest is expected from
    them. ``rows``: returns how many rows a task's result stands for; without it, the sizes are rows.
    """

    name: str
    of: str = ""
    units: Sequence[int] = ()
    sizes: Sequence[int] = ()
    rows: Callable[[Any], int] | None = None


class Done(NamedTuple):
    """The part of a phase that is done: the sums of units, sizes and rows."""

    units: int = 0
    size: int = 0
    rows: int = 0

    def __add__(self, other: tuple[int, ...]) -> Done:  # type: ignore[override]  # adds, and does not append
        return Done(*(one + more for one, more in zip(self, other, strict=True)))


NOTHING: Final = Done()


class _Listener(NamedTuple):
    say: Callable[[str], None]
    every_s: float
    ended: Callable[[], None]


_LISTENER: Final[ContextVar[_Listener | None]] = ContextVar("listener", default=None)


def of_buckets(name: str, tasks: Sequence[Sequence[int]], rows: Sequence[int]) -> Phase:
    """Returns a phase whose tasks have some buckets each; ``rows``: how many a bucket has."""
    sizes = [sum(rows[bucket] for bucket in buckets) for buckets in tasks]
    return Phase(name, "buckets", [len(buckets) for buckets in tasks], sizes)


@contextmanager
def heard(say: Callable[[str], None], every_s: float, ended: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Has ``say`` called with a line every so often while a phase lasts, and ``ended`` after the last line of each.

    Both are called from another thread, and only where a phase lasts so long.
    """
    before = _LISTENER.set(_Listener(say, every_s, ended))
    try:
        yield
    finally:
        _LISTENER.reset(before)


def is_heard() -> bool:
    """Checks whether anybody listens."""
    return _LISTENER.get() is not None


@contextmanager
def telling(phase: Phase, done: Callable[[], Done] = lambda: NOTHING) -> Iterator[None]:
    """Says how far a phase is, for as long as it lasts. ``done``: returns what is done of it."""
    listener = _LISTENER.get()
    if listener is None:
        yield
        return
    begun_s, ended = time.monotonic(), threading.Event()

    def tell() -> None:
        said = False
        with suppress(OSError, ValueError):  # nobody reads any more: the job goes on
            while not ended.wait(listener.every_s):
                listener.say(line(phase, done(), time.monotonic() - begun_s))
                said = True
            if said:
                listener.ended()

    teller = threading.Thread(target=tell, name="progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


def line(phase: Phase, done: Done, since_s: float) -> str:
    """Words how far a phase is after ``since_s`` seconds."""
    total = sum(phase.sizes)
    size = min(done.size, total)  # Spark may have run a task twice
    parts = []
    if phase.units:
        units = sum(phase.units)
        parts.append(f"{min(done.units, units)} of {units} {phase.of}")
    if done.rows and since_s > 0:
        parts.append(f"{done.rows:,} rows, {done.rows / since_s:,.0f} rows/s")
    parts.append(f"about {since_s * (total - size) / size:.0f} s left" if size else f"{since_s:.0f} s so far")
    return f"{phase.name}: {', '.join(parts)}"


def amount(phase: Phase, at: int, found: Any) -> Done:
    """Returns what the task ``at`` of a phase has done, by its result."""
    rows = phase.sizes[at] if phase.rows is None else phase.rows(found)
    return Done(phase.units[at], phase.sizes[at], rows)
