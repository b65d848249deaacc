"""Words names and counts for people, and refuses texts from outside whose characters may hide or move others."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable, Sequence
from typing import Final

from configs.settings import Settings

NAMES_SHOWN: Final = 5
NAMED_MAX: Final = 5
"""Names in a sentence; the others are counted."""
BYTES_STEP: Final = 1_000
"""Bytes of a kilobyte, kilobytes of a megabyte."""
SECONDS_SHOWN_MAX: Final = 180
MINUTES_SHOWN_MAX_S: Final = 3 * 3600


def abbreviate(names: Sequence[str], noun: str = "topics") -> str:
    """Returns some names for a log line, and the number of the others."""
    shown = ", ".join(names[:NAMES_SHOWN])
    return f"{shown} and {len(names) - NAMES_SHOWN} more {noun}" if len(names) > NAMES_SHOWN else shown


def counted(count: int, noun: str) -> str:
    """Returns "1 partition" or "2 partitions"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def in_bytes(count: float) -> str:
    """Returns "17 B", "1.5 MB" or "20.0 GB"."""
    unit, *larger = "B", "kB", "MB", "GB", "TB", "PB"
    for further in larger:
        if count < BYTES_STEP:
            break
        count, unit = count / BYTES_STEP, further
    return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"


def in_time(seconds: int) -> str:
    """Returns "40 s", "5 min" or "3.2 h"."""
    if seconds < SECONDS_SHOWN_MAX:
        return f"{seconds} s"
    return f"{seconds / 60:.0f} min" if seconds < MINUTES_SHOWN_MAX_S else f"{seconds / 3600:.1f} h"


def named(items: Iterable[object], most: int = NAMED_MAX) -> str:
    """Returns some items by name, and the number of the others."""
    shown = [str(item) for item in items]
    more = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {more} more" if more > 0 else "")


def name_of(settings: Settings) -> str:
    """Returns the name of this daemon. Daemons without a Kafka cluster have no ids that differ."""
    return str(settings.controller.id) if settings.has_kafka else f"{socket.gethostname()}:{os.getpid()}"


SHOWN_MAX: Final = 80
"""Characters of a refused text that its refusal shows."""
_HIDDEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # control characters, of terminals among them
    "\u2028\u2029"  # ends of lines
    "\u200b\u2060-\u2064\ufeff"  # no width
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # other directions
    "\ud800-\udfff\U000e0000-\U000e007f]"  # halves of characters, and tags
)


def text_problem(field: str, value: str) -> str | None:
    """Returns why a text is not accepted, naming its field and showing its value; None where nothing is wrong."""
    found = _HIDDEN.search(value)
    if found is None:
        return None
    return (
        f"{field}: {shown(value)} has the control character {shown(found[0])} at place {found.start() + 1}: leave it "
        "out, and write the text on one line"
    )


def problem_in(data: object, field: str = "") -> str | None:
    """Returns why the first text of a document is not accepted, in values and names; None where nothing is wrong."""
    match data:
        case str():
            return text_problem(field, data)
        case dict():
            inner = f"{field}." if field else ""
            for name, value in data.items():
                problem = text_problem(f"{field or 'body'}: a name", str(name)) or problem_in(value, f"{inner}{name}")
                if problem is not None:
                    return problem
        case list():
            for place, value in enumerate(data):
                if (problem := problem_in(value, f"{field}[{place}]")) is not None:
                    return problem
    return None


def shown(value: str) -> str:
    """Returns a text between quotes, as a refusal shows it."""
    return repr(value[:SHOWN_MAX]) + ("..." if len(value) > SHOWN_MAX else "")
