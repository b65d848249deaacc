"""Cuts long work into portions, between which a caller may do other work: a turn of an event loop stays short."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Portions: TypeAlias = Generator[None, None, T]
"""Work that yields after each portion, and returns its result."""


def portions(items: Sequence[T], items_max: int) -> Iterator[Sequence[T]]:
    """Yields the items in order, at most ``items_max`` at a time."""
    for at in range(0, len(items), items_max):
        yield items[at : at + items_max]


def weighed(items: Sequence[T], weigh: Callable[[T], int], *, items_max: int, weight_max: int) -> Iterator[Sequence[T]]:
    """Yields the items in order, at most ``items_max`` and ``weight_max`` at a time; a heavier one comes alone."""
    begin = weight = 0
    for at, item in enumerate(items):
        weight += (more := weigh(item))
        if at > begin and (at - begin == items_max or weight > weight_max):
            yield items[begin:at]
            begin, weight = at, more
    if begin < len(items):
        yield items[begin:]


def at_once(work: Portions[T]) -> T:
    """Does work that comes in portions without a pause; returns its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
