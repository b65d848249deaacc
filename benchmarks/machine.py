"""Describes the machine of the figures, without names and paths."""

from __future__ import annotations

import os
import platform
import re
import time
from pathlib import Path
from typing import Any, Final

from configs.version import product_version
from testing.embedded.java import find_java

PACE_TURNS: Final = 500_000


def pace_ms() -> float:
    """Times a fixed loop, in ms: it shows other work of the host, which nothing else inside the guest does."""
    began_s = time.perf_counter()
    for _ in range(PACE_TURNS):
        pass
    return 1000 * (time.perf_counter() - began_s)


def machine() -> dict[str, Any]:
    """Returns processor, memory and versions."""
    memory = re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    processor = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(memory[1]) / 1024**2) if memory else 0,
        "processor": processor[1].strip() if processor else platform.machine(),
        "python": platform.python_version(),
        "java": find_java().release,
        "kafka": "3.9.1",
        "zookeeper": "3.8.4",
        "regent": product_version(),
    }
