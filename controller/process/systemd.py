"""Notifies systemd (sd_notify): ready, reloading, stopping, a status line, the watchdog.

Without ``NOTIFY_SOCKET`` nothing is sent. A datagram that cannot be sent is lost: the service manager must never block
the daemon.
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
