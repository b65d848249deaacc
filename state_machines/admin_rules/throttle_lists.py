"""Reads and extends the lists of throttled replicas of a topic: ``partition:broker,partition:broker`` or ``*``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

ALL_REPLICAS: Final = "*"
LIST_BYTES_MAX: Final = 32_767
"""Longest list in bytes: no broker can describe a topic with a longer one, as strings in responses end there."""
SHOWN_CHARS_MAX: Final = 60
"""Characters of a value that a sentence shows."""

_REPLICA: Final = re.compile(r"([0-9]{1,10}):([0-9]{1,10})")
_INT32_MAX: Final = 2**31 - 1

Replica = tuple[int, int]
"""A partition and a broker."""


def extended(
    before: str | None, replicas: Iterable[Replica], place: tuple[object, str], notes: list[str]
) -> str | None:
    """Returns a list with ``replicas`` added; None where it stays: ``notes`` says why."""
    entity, setting = place
    if before is not None and before.strip() == ALL_REPLICAS:
        notes.append(f"{setting} of {entity} is {ALL_REPLICAS}: it throttles all replicas already, and stays")
        return None
    items = [item for each in (before or "").split(",") if (item := each.strip())]
    named = [replica_of(item) for item in items]
    if None in named:
        notes.append(
            f"{setting} of {entity} is {shown(before)} and stays, so its moves are not throttled: "
            f"give it the form partition:broker,partition:broker or {ALL_REPLICAS}"
        )
        return None
    missing = [replica for replica in replicas if replica not in set(named)]
    if not missing:
        return before
    text = ",".join((*items, *(f"{partition}:{broker}" for partition, broker in missing)))
    if len(text) <= LIST_BYTES_MAX:
        return text
    notes.append(
        f"{setting} of {entity} is set to {ALL_REPLICAS}, all replicas: a list of {len(text)} bytes is longer than the "
        f"{LIST_BYTES_MAX} bytes that brokers can describe"
    )
    return ALL_REPLICAS


def replica_of(item: str) -> Replica | None:
    """Returns a listed replica; None where the item is malformed."""
    found = _REPLICA.fullmatch(item)
    if found is None:
        return None
    partition, broker = int(found[1]), int(found[2])
    return (partition, broker) if max(partition, broker) <= _INT32_MAX else None


def shown(value: str | None) -> str:
    """Returns a value for a sentence, without its end where it is long."""
    if value is None:
        return "no value"
    return repr(value if len(value) <= SHOWN_CHARS_MAX else f"{value[:SHOWN_CHARS_MAX]}...")
