"""Reads times from a log that another process writes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

Stamp = Callable[[str], float]


class LogFollower:
    """Reads the lines of ``path`` from now on. ``stamp`` returns a line's time, in seconds since the epoch."""

    def __init__(self, path: Path, stamp: Stamp) -> None:
        self._path = path
        self._stamp = stamp
        self._at = path.stat().st_size if path.exists() else 0
        self._rest = ""
        self.lines: list[str] = []

    def find(self, pattern: str) -> float | None:
        """Returns the time of the first matching line since the start, or None."""
        self._read()
        line = next((line for line in self.lines if re.search(pattern, line)), None)
        return None if line is None else self._stamp(line)

    def _read(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as log:
            log.seek(self._at)
            new = log.read()
        self._at += len(new)
        *whole, self._rest = (self._rest + new.decode(errors="replace")).split("\n")
        self.lines += whole


def log4j_stamp(line: str) -> float:
    """Returns the time of a line that begins with log4j's ISO8601 time, in UTC."""
    return datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC).timestamp()


def json_stamp(line: str) -> float:
    """Returns the time of a line of the daemon's JSON log."""
    return datetime.fromisoformat(json.loads(line)["timestamp"]).timestamp()
