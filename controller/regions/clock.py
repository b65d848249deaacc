"""The clock of the regions' domain: stored times hold their length, however the machine's wall clock is set.

Holds, pauses and expiry times are stored, and outlive a process. So their clock is stored, too: its time, and the
machine's time since its boot at that moment. A daemon goes on from there by the time since the boot, which
no command sets. After a reboot, or on another machine, the wall clock counts again, but the time never goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from controller.process.clock import boottime_ms
from metadata_store.catalog.rows import MarkRow, PutMark

KIND: Final = "clock"
SUBJECT: Final = "domain"
STORED_EVERY_MS: Final = 60_000
"""Time after which the clock is stored again: after a reboot it goes back at most that far."""
BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class Uptime(NamedTuple):
    """A machine's time. ``boot``: names the boot since which ``since_ms`` counts, also through a suspend."""

    boot: str
    since_ms: int


@cache
def _boot() -> str:
    try:
        return BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def uptime() -> Uptime:
    """Returns the time of this machine; without a name of its boot none is the same as another."""
    return Uptime(_boot(), boottime_ms())


class SteadyClock:
    """Counts milliseconds since 1970 from the wall clock, and follows no later change of that."""

    def __init__(self, wall_ms: Callable[[], int], up: Callable[[], Uptime] = uptime) -> None:
        self._wall_ms, self._up = wall_ms, up
        self._since_ms = boottime_ms if up is uptime else lambda: up().since_ms
        self._at, self._offset_ms = up(), 0
        self._begin_at(wall_ms(), self._at)
        self._stored_ms = 0

    def now_ms(self) -> int:
        """Returns the time. Each step of a procedure asks for it, so it looks at the boot's name no more."""
        return self._offset_ms + self._since_ms()

    def _begin_at(self, base_ms: int, at: Uptime) -> None:
        self._at, self._offset_ms = at, base_ms - at.since_ms

    def begin(self, marks: Iterable[MarkRow]) -> None:
        """Goes on from the stored time, where a catalog has one."""
        self._at = self._up()
        base_ms = self._wall_ms()
        for one in marks:
            if one.kind == KIND:
                ran_ms = self._ran_ms(one.value)
                base_ms = max(one.until_ms, base_ms) if ran_ms < 0 else one.until_ms + ran_ms
        self._begin_at(base_ms, self._at)

    def _ran_ms(self, stored: str) -> int:
        """Returns how long the machine has run since a time was stored; -1 where that is not known."""
        boot, _, since = stored.rpartition(" ")
        if not boot or boot != self._at.boot or not since.isdecimal():
            return -1
        return max(-1, self._at.since_ms - int(since))

    def is_due(self) -> bool:
        """Checks whether the time is to be stored."""
        return self.now_ms() - self._stored_ms >= STORED_EVERY_MS

    def row(self) -> PutMark:
        """Returns the write that stores the time."""
        self._stored_ms, up = self.now_ms(), self._up()
        return PutMark(MarkRow(KIND, SUBJECT, f"{up.boot} {up.since_ms}", self._stored_ms))

    def shown_ms(self, time_ms: int) -> int:
        """Returns a stored time as the wall clock will show it."""
        return time_ms + self._wall_ms() - self.now_ms() if time_ms else 0
