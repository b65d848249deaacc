"""Counts what the kill tests of a run have played, over all its processes, and prints it at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest

PROPERTY: Final = "kills"

RecordProperty = Callable[[str, object], None]


def tally(record_property: RecordProperty, kind: str, store: str, deaths: int, *, doubled: int = 0) -> None:
    """Notes deaths of daemons that a test played, and runs in which each step and each undoing was executed twice."""
    record_property(PROPERTY, (kind, store, deaths, doubled))


def summary(reports: list[pytest.TestReport]) -> list[str]:
    """Returns a line for each store, and one for the whole; none without kill tests."""
    kinds: dict[str, set[str]] = {}
    deaths: Counter[str] = Counter()
    doubled: Counter[str] = Counter()
    for report in reports:
        for name, value in report.user_properties:
            if name == PROPERTY and isinstance(value, tuple | list):
                kind, store, died, twice = value
                kinds.setdefault(str(store), set()).add(str(kind))
                deaths[str(store)] += int(died)
                doubled[str(store)] += int(twice)
    lines = [
        f"{store}: {deaths[store]} deaths of daemons, {doubled[store]} runs with each step twice, "
        f"over {len(kinds[store])} kinds of families"
        for store in sorted(kinds)
    ]
    if lines:
        names = set().union(*kinds.values())
        lines.append(f"all: {deaths.total()} deaths, {doubled.total()} runs with each step twice, {len(names)} kinds")
    return lines
