"""Makes the sentence that the record of a client's call has as its result: changed entities, and refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final

from controller.process.wording import counted, named

NAMES_MAX: Final = 10
"""Entities that a result names; the others are counted."""
ERRORS_MAX: Final = 5
"""Different errors that a result names."""


def call_result(done: str, names: Sequence[object], noun: str, refused: Iterable[IntEnum] = ()) -> str:
    """Returns for instance "created 2 topics: a, b; refused: 1 x TOPIC_ALREADY_EXISTS"."""
    return "; ".join([f"{done} {counted(len(names), noun)}: {named(names, NAMES_MAX)}", *refusals(refused)])


def refusals(errors: Iterable[IntEnum]) -> list[str]:
    """Returns a part of a result with the number of each error, or no part where nothing was refused."""
    counts = Counter(error.name for error in errors)
    if not counts:
        return []
    return [f"refused: {named((f'{count} x {name}' for name, count in counts.most_common()), ERRORS_MAX)}"]
