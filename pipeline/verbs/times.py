"""Reads times of a command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from pipeline.verbs.ending import USAGE, Stopped

_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def moment(option: str, text: str | None, now: datetime) -> int | None:
    """Returns microseconds of the wall clock; raises :class:`Stopped`."""
    if text is None:
        return None
    try:
        span = length(text)
        then = now - span if span is not None else datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        remedy = "give 90s, 30m, 2h or 1d, or a time such as 2026-01-31T12:00:00 (UTC unless it says otherwise)"
        raise Stopped(USAGE, f"{option} {text} is no time", remedy) from None
    then = then if then.tzinfo is not None else then.replace(tzinfo=UTC)
    return int(then.timestamp() * 1e6)


def length(text: str) -> timedelta | None:
    """Returns a length of time such as ``90s``, ``30m``, ``2h`` or ``14d``; None for what is none, or is too long."""
    found = _AGO.fullmatch(text)
    try:
        return timedelta(**{_UNITS[found[2]]: float(found[1])}) if found else None
    except OverflowError:
        return None
