"""Reads CPU seconds and resident memory of a process from the kernel."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_KIB: Final = 1024
_MB: Final = 1_000_000


def cpu_s(pid: int) -> float:
    """Returns user and system time of all threads so far, in seconds (exact to a clock tick)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def children(pid: int) -> list[int]:
    """Returns the running child processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid:
            found.append(int(path.parent.name))
    return found


def busy_s() -> float:
    """Returns the CPU seconds of all processes, interrupts and other guests of the host since boot."""
    user, nice, system, _, _, irq, softirq, steal, *_ = map(
        int, Path("/proc/stat").read_text().split("\n")[0].split()[1:]
    )
    return (user + nice + system + irq + softirq + steal) * _TICK_S


def peak_rss_mb(pid: int) -> float:
    """Returns the highest resident memory since :func:`forget_peak`, in MB."""
    return _status(pid, "VmHWM")


def rss_mb(pid: int) -> float:
    """Returns the present resident memory, in MB."""
    return _status(pid, "VmRSS")


def forget_peak(pid: int) -> None:
    """Begins a new peak at the present resident memory."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _status(pid: int, field: str) -> float:
    found = re.search(rf"^{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) * _KIB / _MB if found else 0.0
