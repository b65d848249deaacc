"""Judges texts from outside that people read in lists, logs and journals: no character may hide or move others."""

from __future__ import annotations

import re
from typing import Final

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
