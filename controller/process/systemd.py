"""What systemd is told (sd_notify): ready, reloading, stopping, a status line, signs of life.

Without ``NOTIFY_SOCKET`` everything here does nothing. A datagram that cannot be sent is lost: the service manager must
never hold the daemon up.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping


class ServiceManager:
    """The service manager that started this process, if one did."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_s = _watchdog_s(environ)
        """Seconds without a sign of life after which systemd kills the process (``WatchdogSec=``); None if off."""

    def ready(self, status: str) -> None:
        """Start-up is over."""
        self._notify(f"READY=1\nSTATUS={status}")

    def status(self, status: str) -> None:
        """One line for ``systemctl status``."""
        self._notify(f"STATUS={status}")

    def reloading(self) -> None:
        """A reload has begun (``notify-reload`` wants the time of it); :meth:`reloaded` ends it."""
        self._notify(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000}")

    def reloaded(self) -> None:
        """The reload is over; the status stays."""
        self._notify("READY=1")

    def stopping(self, status: str) -> None:
        """The process is on its way out."""
        self._notify(f"STOPPING=1\nSTATUS={status}")

    def alive(self) -> None:
        """Feeds the watchdog: the loop turns and the queue moves. Wanted at least every ``watchdog_s / 2``."""
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
