"""Ends the process when its loop has not turned for too long, and feeds systemd's watchdog (sd_notify).

kazoo's own thread keeps the session of a frozen loop alive, so a stalled daemon would hold the role and do nothing.
A plain thread watches; the loop's own tick watches, too, because it may wake before the thread after SIGCONT.

systemd is also notified of the start, reloads, the stop and a status line. Without ``NOTIFY_SOCKET`` nothing is sent.
A datagram that cannot be sent is lost: the service manager must never block the daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping

from controller.process.clock import boottime_s

STALLED_EXIT = 75
TICK_S = 0.05
LAST_WORDS_S_MAX = 1.0
"""Longest wait of the second watcher for the last words of the first one."""
SESSION_FRACTION = 0.45
"""Part of the granted session timeout that replaces a limit of half the timeout or more."""


class ServiceManager:
    """The service manager that started this process, if one did."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_s = _watchdog_s(environ)
        """Seconds without a watchdog signal after which systemd kills the process (``WatchdogSec=``); None if off."""

    def ready(self, status: str) -> None:
        """Reports the end of the start-up."""
        self._notify(f"READY=1\nSTATUS={status}")

    def status(self, status: str) -> None:
        """Sends one line for ``systemctl status``."""
        self._notify(f"STATUS={status}")

    def reloading(self) -> None:
        """Reports the begin of a reload with its time, for ``notify-reload``; :meth:`reloaded` ends it."""
        self._notify(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000}")

    def reloaded(self) -> None:
        """Reports the end of a reload; the status stays."""
        self._notify("READY=1")

    def stopping(self, status: str) -> None:
        """Reports that the process stops."""
        self._notify(f"STOPPING=1\nSTATUS={status}")

    def alive(self) -> None:
        """Feeds the watchdog, which needs it at least every ``watchdog_s / 2``."""
        self._notify("WATCHDOG=1")

    def _notify(self, state: str) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(state.encode(), self._address)


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    usec = environ.get("WATCHDOG_USEC", "")
    ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return int(usec) / 1e6 if ours and usec.isdigit() and int(usec) > 0 else None


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
            if lag > self.limit_s and not self._stop.is_set():
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
