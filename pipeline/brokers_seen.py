"""Finds when each broker was there, within a term. Each term begins with those that it found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from typing import Final, NamedTuple

from state_machines.journal.events import Kind, Row

BROKERS: Final = frozenset({Kind.BROKER_UP, Kind.BROKER_DOWN, Kind.BROKER_SHUTDOWN_BEGIN})
"""Kinds of rows by which a broker comes, or may not lead any more."""
READ: Final = ("kind", "cluster", "ctl_epoch", "seq", "broker", "broker_epoch", "mono_us")
"""Columns of these rows that are needed."""


class Life(NamedTuple):
    """The rows of a term between which a broker could lead. ``until`` is null: to the end."""

    cluster: str
    ctl_epoch: int
    broker: int
    since: int
    until: int | None


class Registration(NamedTuple):
    """An incarnation of a broker in a term: from its row to a time on the monotonic clock (null: to the end)."""

    cluster: str
    ctl_epoch: int
    broker: int
    broker_epoch: int
    since: int
    until_us: int | None


def lives(events: Iterable[Row]) -> list[Life]:
    """Returns when brokers could lead. One that began to shut down comes back only with a new registration."""
    return [Life(*_broker(up), up.seq, None if after is None else after.seq) for up, after in _ups(events)]


def registrations(events: Iterable[Row]) -> list[Registration]:
    """Returns the incarnations of brokers; one without an epoch cannot be named by a request."""
    lasting = (event for event in events if event.kind != Kind.BROKER_SHUTDOWN_BEGIN)
    return [
        Registration(*_broker(up), up.broker_epoch, up.seq, None if after is None else after.mono_us)
        for up, after in _ups(lasting)
        if up.broker_epoch is not None
    ]


def _ups(events: Iterable[Row]) -> Iterator[tuple[Row, Row | None]]:
    """Yields each row with which a broker comes, and the next row of that broker in the term."""
    ordered = sorted(events, key=lambda event: (_broker(event), event.seq))
    for _, of_broker in groupby(ordered, key=_broker):
        for event, after in pairwise([*of_broker, None]):
            if event is not None and event.kind == Kind.BROKER_UP:
                yield event, after


def _broker(event: Row) -> tuple[str, int, int]:
    return event.cluster, event.ctl_epoch, -1 if event.broker is None else event.broker
