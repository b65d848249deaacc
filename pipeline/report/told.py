"""Reads the requests that told brokers of decisions: few numbers of each, and of those of one millisecond only one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.report.terms import NONE, Flags, Ints, Terms, runs
from state_machines.journal.events import Kind

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


COLUMNS: Final = (*("ctl_epoch", "ctl_id", "kind", "broker", "api", "partitions", "t_sent", "t_acknowledged", "err"),)
"""Columns that :func:`told` reads."""
LEADERS: Final = "LEADER_AND_ISR"
CLIENTS: Final = "UPDATE_METADATA"
SAME_US: Final = 1_000
KEPT: Final = ("ctl_epoch", "ctl_id", "broker", "t_sent", "t_acknowledged")
"""Columns of :func:`told`, of int64. Requests that tell clients have the broker :data:`EVERY`."""


def told(rows: pa.Table) -> pa.Table:
    """Returns the requests that tell when a decision was known: no more than a broker acknowledges in a term.

    Of requests whose acknowledgements are in the same millisecond one is left, so there are 1,000 a second at most,
    and a time that is found by them is up to a millisecond too late. Two fifths of a journal are requests.
    """
    done = rows.filter(_done(rows))
    leaders = np.asarray(pc.equal(done["api"], LEADERS), bool)
    number = {name: np.asarray(pc.cast(done[name], pa.int64()), np.int64) for name in KEPT}
    number["broker"] = np.where(leaders, number["broker"], EVERY)
    epoch, daemon, broker, sent, acknowledged = (number[name] for name in KEPT)
    kept, earliest = lasting((epoch, daemon, broker), sent, acknowledged, SAME_US)
    return pa.table([*(values[kept] for values in (epoch, daemon, broker, sent)), earliest], KEPT)


def fronts(parts: Iterable[pa.Table], terms: Terms) -> tuple[Front, Front]:
    """Returns acknowledgements of LeaderAndIsr by broker, and of UpdateMetadata by any broker. ``parts``: of told."""
    empty = pa.table({name: pa.array([], pa.int64()) for name in KEPT})
    whole = pa.concat_tables([empty, *parts])
    epoch, daemon, broker, sent, done = (np.asarray(whole[name], np.int64) for name in KEPT)
    term = terms.index(epoch, daemon)
    requests = Requests(term, broker, terms.wall(term, sent), terms.wall(term, done))
    clients: Any = broker == EVERY
    return _front(requests, ~clients), _front(requests, clients)


def _front(requests: Requests, chosen: Ints) -> Front:
    return Front.of(Requests(*(values[chosen] for values in requests)))


def _done(rows: pa.Table) -> Any:
    """Checks which requests told a broker something: one that it refused (``err``) had no effect.

    UpdateMetadata that names no partition has the list of brokers alone.
    """
    clients = pc.and_(pc.equal(rows["api"], CLIENTS), pc.not_equal(rows["partitions"], 0))
    told = pc.and_(pc.equal(rows["kind"], Kind.RPC_BATCH.value), pc.or_(pc.equal(rows["api"], LEADERS), clients))
    timed = pc.and_(pc.is_valid(rows["t_sent"]), pc.is_valid(rows["t_acknowledged"]))
    return pc.fill_null(pc.and_(told, pc.and_(timed, pc.is_null(rows["err"]))), False)
