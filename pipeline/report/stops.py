"""Finds the stops of brokers, planned or not, in the rows of brokers and terms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pipeline.report.terms import Ints, Line, Terms
from state_machines.journal.events import Kind

KINDS: Final = frozenset(
    {Kind.CTL_ELECTED, Kind.CTL_PHASE, Kind.BROKER_UP, Kind.BROKER_DOWN}
    | {Kind.BROKER_SHUTDOWN_BEGIN, Kind.BROKER_SHUTDOWN_END}
)
"""Kinds of rows that :func:`stops_of` reads."""


class Stop(Struct, frozen=True):
    """One stop of a broker. Times are microseconds of the wall clock; None: not in the journal.

    ``begin_us``: it began its controlled shutdown, or its death was noticed. ``at_most_us``: the earliest time at which
    it can have ceased to serve: ``begin_us`` of a planned stop, else earlier by the session time-out and a tick of
    ZooKeeper (None: the time-out is not known). ``free_us``: its controlled shutdown was granted. ``down_us``: its
    registration was gone. ``up_us``: it was registered again. ``between_terms``: no term saw it go; one had it, and
    the next one had not, or had a later incarnation.
    """

    broker: int
    planned: bool
    begin_us: int
    at_most_us: int | None
    free_us: int | None = None
    down_us: int | None = None
    up_us: int | None = None
    between_terms: bool = False


class Silence(Struct, frozen=True):
    """How long a dead broker may stay registered: its session time-out and ZooKeeper's tick.

    The time-out is that of the row of its death, else that ``by_broker``, else ``session_ms``, if any is known.
    ZooKeeper ends a session at the next tick after the time-out, so a death may be older than it by a tick.
    """

    session_ms: int | None
    tick_ms: int
    by_broker: Mapping[int, int] = {}

    def before(self, known_us: int, broker: int, of_row: int | None = None) -> int | None:
        """Returns the earliest time of a broker's death that was known at ``known_us``; None without a time-out."""
        session = of_row if of_row is not None else self.by_broker.get(broker, self.session_ms)
        return None if session is None else known_us - (session + self.tick_ms) * 1000


def stops_of(rows: Iterable[Line], terms: Terms, silence: Silence) -> list[Stop]:
    """Returns all stops by their begin. ``rows``: those of :data:`KINDS`, by epoch and number."""
    finder = _Finder(terms, silence)
    for row in rows:
        finder.take(row)
    return sorted(finder.found(), key=lambda stop: (stop.begin_us, stop.broker))


def latest_stop(stops: Sequence[Stop], broker: Ints, at: Ints) -> Ints:
    """Returns for each (broker, time) the number of the broker's latest stop that had begun, or -1."""
    found: Ints = np.full(len(at), -1, np.int64)
    for each in {stop.broker for stop in stops}:
        numbers = np.array([number for number, stop in enumerate(stops) if stop.broker == each])
        begins = np.array([stops[number].begin_us for number in numbers])
        rows = np.flatnonzero(broker == each)
        places = np.searchsorted(begins, at[rows], side="right") - 1
        found[rows] = np.where(places >= 0, numbers[places], -1)
    return found


def next_begins(stops: Sequence[Stop]) -> list[int | None]:
    """Returns for each stop when the next one of its broker begins."""
    following: dict[int, int] = {}
    found: list[int | None] = []
    for stop in reversed(stops):
        found.append(following.get(stop.broker))
        following[stop.broker] = stop.begin_us
    return found[::-1]


class _Finder:
    """Follows each broker through the rows: registered with an incarnation, stopping, or gone."""

    def __init__(self, terms: Terms, silence: Silence) -> None:
        self._terms = terms
        self._silence = silence
        self._ended: list[Stop] = []
        self._open: dict[int, Stop] = {}
        self._registered: dict[int, int | None] = {}
        self._listed: dict[int, int | None] | None = None
        self._elected_us = self._seen_us = 0

    def found(self) -> list[Stop]:
        return [*self._ended, *self._open.values()]

    def take(self, row: Line) -> None:
        kind, broker = row["kind"], row.get("broker")
        if kind == Kind.CTL_ELECTED:
            self._elect(row)
        elif kind == Kind.CTL_PHASE:
            self._compare()
        elif kind == Kind.BROKER_UP and self._listed is not None:
            self._listed[row["broker"]] = row.get("broker_epoch")
        elif broker is not None:
            self._compare()
            self._follow(row, broker)

    def _elect(self, row: Line) -> None:
        at = self._terms.of(row)
        self._listed = {}
        self._elected_us = self._terms.at(row)
        self._seen_us = max((term.last_us for term in self._terms.all[:at]), default=self._elected_us)

    def _compare(self) -> None:
        """Compares the brokers that a new term lists with those of the term before."""
        if self._listed is None:
            return
        listed, self._listed = self._listed, None
        for broker, epoch in self._registered.items():
            if broker not in self._open and (broker not in listed or _later(epoch, listed[broker])):
                seen_us = min(self._seen_us, self._elected_us)
                begins_us = self._silence.before(seen_us, broker)
                self._open[broker] = Stop(
                    broker, False, self._elected_us, begins_us, down_us=self._elected_us, between_terms=True
                )
        for broker, stop in list(self._open.items()):
            same = (
                broker in listed and stop.down_us is None and not _later(self._registered.get(broker), listed[broker])
            )
            if broker in listed and not same:
                self._close(broker, self._elected_us)
        self._registered = listed

    def _follow(self, row: Line, broker: int) -> None:
        stop, kind = self._open.get(broker), row["kind"]
        if kind == Kind.BROKER_SHUTDOWN_BEGIN:
            at_us = self._terms.at(row)
            if stop is None or stop.down_us is not None:
                self._put_away(broker)
                self._open[broker] = Stop(broker, True, at_us, at_us)
        elif kind == Kind.BROKER_SHUTDOWN_END and stop is not None:
            self._open[broker] = replace(stop, free_us=self._terms.at(row))
        elif kind == Kind.BROKER_DOWN:
            at_us = self._terms.at(row, "t_detect")
            self._registered.pop(broker, None)
            if stop is None or stop.down_us is not None:
                self._put_away(broker)
                stop = Stop(broker, False, at_us, self._silence.before(at_us, broker, row.get("session_ms")))
            self._open[broker] = replace(stop, down_us=at_us)
        elif kind == Kind.BROKER_UP:
            self._registered[broker] = row.get("broker_epoch")
            self._close(broker, self._terms.at(row))

    def _close(self, broker: int, up_us: int) -> None:
        if broker in self._open:
            self._ended.append(replace(self._open.pop(broker), up_us=up_us))

    def _put_away(self, broker: int) -> None:
        if broker in self._open:
            self._ended.append(self._open.pop(broker))


def _later(before: int | None, after: int | None) -> bool:
    """Checks whether two registrations are different incarnations."""
    return before is not None and after is not None and before != after
