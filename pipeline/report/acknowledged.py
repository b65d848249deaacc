"""Finds when brokers knew of a decision: the first acknowledged request that was sent after it was committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from pipeline.report.terms import NONE, Flags, Ints, runs

SENT_SLACK_US: Final = 2_000
"""A request's time of sending comes from a clock of whole milliseconds: it may seem to be earlier by that much."""
LATER_TERMS_MAX: Final = 3
"""Terms that are searched where the own term has no acknowledgement."""
EVERY: Final = -1
"""Broker of requests of which any broker's acknowledgement counts."""


class Requests(NamedTuple):
    """Acknowledged requests: term, broker, and microseconds of the wall clock."""

    term: Ints
    broker: Ints
    sent: Ints
    acknowledged: Ints


class Found(NamedTuple):
    """``at``: when it was acknowledged, or unknown. ``clocks``: by a request of a later term, so on two clocks."""

    at: Ints
    clocks: Flags


class Front:
    """Requests by term and broker, as the earliest acknowledgement of any that was sent at a time or later."""

    def __init__(self, slices: Mapping[tuple[int, int], tuple[Ints, Ints]]) -> None:
        self._slices = slices

    @staticmethod
    def of(requests: Requests) -> Front:
        """Makes it of requests in any order."""
        kept, earliest = lasting((requests.term, requests.broker), requests.sent, requests.acknowledged)
        term, broker, sent = requests.term[kept], requests.broker[kept], requests.sent[kept]
        return Front({(int(term[a]), int(broker[a])): (sent[a:b], earliest[a:b]) for a, b in runs(term, broker)})

    def renumbered(self, places: Ints) -> Front:
        """Returns the same requests with another number of each term: ``places`` of the present one."""
        return Front({(int(places[term]), broker): found for (term, broker), found in self._slices.items()})

    def first(self, term: Ints, broker: Ints, at: Ints) -> Found:
        """Returns for each (term, broker, time) the first acknowledgement in its term, else in one of the next ones."""
        found: Ints = np.full(len(at), NONE, np.int64)
        self._search(found, np.arange(len(at)), term, broker, at)
        clocks = found == NONE
        for later in range(1, LATER_TERMS_MAX + 1):
            left = np.flatnonzero(found == NONE)
            self._search(found, left, term[left] + later, broker[left], at)
        return Found(found, clocks & (found != NONE))

    def _search(self, found: Ints, rows: Ints, term: Ints, broker: Ints, at: Ints) -> None:
        """Looks up ``rows``, whose terms and brokers are given, with one search for all rows of a term and broker."""
        order = np.asarray(np.lexsort((broker, term)), np.int64)
        for start, end in runs(term[order], broker[order]):
            slices = self._slices.get((int(term[order[start]]), int(broker[order[start]])))
            if slices is not None:
                some, (sent, done) = rows[order[start:end]], slices
                places = np.asarray(np.searchsorted(sent, at[some] - SENT_SLACK_US), np.int64)
                known = places < len(sent)
                found[some[known]] = done[places[known]]


def lasting(keys: Sequence[Ints], sent: Ints, done: Ints, same_us: int = 1) -> tuple[Ints, Ints]:
    """Returns the rows that a :class:`Front` needs, by keys and time of sending, and the earliest acknowledgements.

    These are of the requests of the same keys that were sent then or later. A row is left out where the next one has
    the same, in units of ``same_us``.
    """
    order = np.asarray(np.lexsort((-done, sent, *reversed(keys))), np.int64)
    earliest = done[order]
    stays: Flags = np.ones(len(order), bool)
    for start, end in runs(*(key[order] for key in keys)):
        earliest[start:end] = np.minimum.accumulate(earliest[start:end][::-1])[::-1]
        steps = earliest[start:end] // same_us
        stays[start : end - 1] = steps[1:] != steps[:-1]
    return order[stays], earliest[stays]
