"""Ends the process when the loop has not turned for too long.

kazoo's own thread keeps the session of a frozen loop alive, so a stalled daemon would hold the role and do nothing.
A plain thread watches; the loop's own tick watches, too, because it may wake before the thread after SIGCONT.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import traceback
from collections.abc import Callable

from controller.process.clock import boottime_s

STALLED_EXIT = 75
TICK_S = 0.05
LAST_WORDS_S_MAX = 1.0
"""Longest wait of the second watcher for the last words of the first one."""
SESSION_FRACTION = 0.45
"""Part of the granted session timeout that replaces a limit of half the timeout or more."""


class StallGuard:
    """Watches the loop. ``limit_s``: longest time between two of its turns (``controller.loop_stall_ms_max``).

    ``last_words`` writes the reason and the stacks right before the process ends.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float] = boottime_s) -> None:
        self.limit_s = self._wanted_s = limit_s
        self.longest_s = 0.0
        self.on_lag: Callable[[float], None] = lambda _: None
        self.last_words: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True)
        self._clock = clock
        self._ticked: float | None = None
        self._stop = threading.Event()
        self._ending = threading.Lock()

    def within(self, session_s: float) -> None:
        """Adapts the limit to a granted session timeout: a frozen process must end before its session."""
        fits = self._wanted_s < session_s / 2
        self.limit_s = self._wanted_s if fits else SESSION_FRACTION * session_s

    def start(self) -> None:
        """Starts the watching thread."""
        threading.Thread(target=self._watch, name="stall-guard", daemon=True).start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stop.set()

    def stalled_s(self) -> float:
        """Returns the seconds since the loop last turned; 0 before its first turn, without a role to lose."""
        return 0.0 if self._ticked is None else self._clock() - self._ticked

    async def tick(self) -> None:
        """Ticks on the loop until cancelled; then the thread ends, too."""
        try:
            while True:
                lag = self.stalled_s()
                self.longest_s = max(self.longest_s, lag - TICK_S)
                self.on_lag(max(0.0, lag - TICK_S))
                if lag > self.limit_s:
                    self._end(lag)
                self._ticked = self._clock()
                await asyncio.sleep(TICK_S)
        finally:
            self.stop()

    def _watch(self) -> None:
        while not self._stop.wait(self.limit_s / 4):
            lag = self.stalled_s()
            if lag > self.limit_s:
                self._end(lag)

    def _end(self, lag: float) -> None:
        """Ends the process. Loop and thread may both get here: the second one waits and writes nothing."""
        if not self._ending.acquire(timeout=LAST_WORDS_S_MAX):
            os._exit(STALLED_EXIT)
        try:
            self.last_words(
                f"the event loop stood still for {lag:.1f} s (limit {self.limit_s:.1f} s, "
                "from controller.loop_stall_ms_max and the session timeout): the process ends, so that another daemon "
                f"or a broker takes the controller role; stacks of its threads:\n{stacks()}"
            )
        finally:
            os._exit(STALLED_EXIT)


def stacks() -> str:
    """Returns the stack of every thread as text, without locals."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"Thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame)).rstrip()}"
        for ident, frame in sys._current_frames().items()  # noqa: SLF001 (documented, and the only way)
    )
