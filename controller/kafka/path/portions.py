"""Carries a decision on many rows out in portions, so that no turn of the loop grows with the size of a topic.

Each portion is decided, committed, applied and propagated before the next one: a complete change. A term that ends in
between leaves rows as an event would that never came, and the next term finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TypeVar

from controller.kafka.journal.report import Reason, Report
from controller.kafka.path.controller import Controller

T = TypeVar("T")


def portions(items: Sequence[T], items_max: int) -> Iterator[Sequence[T]]:
    """Yields the items in order, at most ``items_max`` at a time."""
    for at in range(0, len(items), items_max):
        yield items[at : at + items_max]


async def carry_out_portions(
    c: Controller, decide: Callable[..., None], rows: Sequence[int], reason: Reason, why: str, *, rows_max: int
) -> Report:
    """Carries ``decide`` out, which takes ``rows``, for some rows after the others; returns all reports as one.

    Brokers receive several portions together, as they do the multis of one.
    """
    total = Report(why, reason.value)
    with c.channels.more_coming() if len(rows) > rows_max else nullcontext():
        for some in portions(rows, rows_max):
            total.add(await c.carry_out(partial(decide, rows=some), reason, why))
    return total
