"""Judges A15 beyond single rows: requests name a registration of their time, by a term that is not over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.arrays import numbers
from pipeline.brokers_seen import Registration
from pipeline.compiling import latest
from pipeline.judge import ALWAYS, BATCH_ROWS_MAX
from pipeline.kernel import ABSENT, Ints
from pipeline.verdict import NAMED, Broken, keyed, rows_of
from state_machines.journal.events import Kind, Row

CLOCKS_US_MAX: Final = 1_000_000
"""Difference of the wall clocks of two machines that excuses an order of requests."""
READ: Final = (*NAMED, "broker_epoch", "t_sent", "t_acknowledged", "api", "err")
"""Columns of requests that are compared."""


class Overtaken(NamedTuple):
    """A term of which a broker acknowledged requests, and when it first acknowledged one of a later term."""

    cluster: str
    broker: int
    ctl_epoch: int
    at_us: int


def acknowledged(part: pa.Table) -> pa.Table:
    """Returns the requests of a table that were acknowledged. One that was given up is not judged."""
    return part.filter((pc.field("kind") == Kind.RPC_BATCH.value) & pc.field("t_acknowledged").is_valid())


def overtaken(parts: Iterable[pa.Table]) -> list[Overtaken]:
    """Returns the terms that were overtaken at a broker. A request that the broker refused had no effect."""
    first_us: dict[tuple[str, int, int], int] = {}
    for part in parts:
        done = acknowledged(part).filter(pc.field("err").is_null() & pc.field("broker").is_valid())
        for found in done.group_by(["cluster", "broker", "ctl_epoch"]).aggregate([("ts_us", "min")]).to_pylist():
            key = found["cluster"], found["broker"], found["ctl_epoch"]
            first_us[key] = min(first_us.get(key, found["ts_us_min"]), found["ts_us_min"])
    result, later = [], dict[tuple[str, int], int]()
    for cluster, broker, ctl_epoch in sorted(first_us, reverse=True):
        soonest = later.get((cluster, broker))
        if soonest is not None:
            result.append(Overtaken(cluster, broker, ctl_epoch, soonest))
        mine = first_us[cluster, broker, ctl_epoch]
        later[cluster, broker] = mine if soonest is None else min(mine, soonest)
    return result


def requests_kept(part: pa.Table, registered: Sequence[Registration], terms: Sequence[Overtaken]) -> Iterator[Broken]:
    """Yields violations of A15 that requests of a table show.

    One that was under way when its broker went may be acknowledged later. The wall clocks of two daemons may differ by
    :data:`CLOCKS_US_MAX`.
    """
    sent = acknowledged(part)
    if sent.num_rows:
        yield from _of(sent, _unregistered(sent, registered), _to_nobody)
        yield from _of(sent, _late(sent, terms), _late_sentence)


def _of(sent: pa.Table, broken: Ints, made: Callable[[Row], Broken]) -> Iterator[Broken]:
    for first in range(0, len(broken), BATCH_ROWS_MAX):
        for row in rows_of(sent.take(pa.array(broken[first : first + BATCH_ROWS_MAX]))):
            yield made(row)


def _unregistered(sent: pa.Table, registered: Sequence[Registration]) -> Ints:
    """Returns the requests to an incarnation of a broker that was not registered."""
    clusters: dict[str, int] = {}
    wanted = _lines(sent, ("cluster", "ctl_epoch", "broker", "broker_epoch", "seq"), clusters)
    known = keyed(
        (
            (clusters[one.cluster], *one[1:5], ALWAYS if one.until_us is None else one.until_us)
            for one in registered
            if one.cluster in clusters
        ),
        len(Registration._fields),
    )
    found = latest(known[:-1], wanted)
    there = found >= 0
    at = numbers("t_sent", sent["t_sent"], {})
    there[there] = known[-1, found[there]] >= at[there]
    return np.flatnonzero(~there)


def _late(sent: pa.Table, terms: Sequence[Overtaken]) -> Ints:
    """Returns the requests that were sent after a later term's request was acknowledged."""
    clusters: dict[str, int] = {}
    wanted = _lines(sent, ("cluster", "broker", "ctl_epoch", "seq"), clusters)
    known = keyed(
        ((clusters[one.cluster], *one[1:3], 0, one.at_us) for one in terms if one.cluster in clusters),
        len(Overtaken._fields) + 1,
    )
    found = latest(known[:-1], wanted)
    since, until = numbers("t_sent", sent["t_sent"], {}), numbers("t_acknowledged", sent["t_acknowledged"], {})
    sent_us = numbers("ts_us", sent["ts_us"], {}) - np.where(since == ABSENT, 0, until - since)
    judged = (found >= 0) & (since != ABSENT) & np.asarray(sent["err"].is_null())
    judged[judged] = sent_us[judged] > known[-1, found[judged]] + CLOCKS_US_MAX
    return np.flatnonzero(judged)


def _lines(sent: pa.Table, names: Sequence[str], clusters: dict[str, int]) -> Ints:
    return np.ascontiguousarray(np.stack([numbers(name, sent[name], clusters) for name in names]))


def _to_nobody(row: Row) -> Broken:
    what = f"{row.api} went to broker epoch {row.broker_epoch} which was not registered"
    return Broken("A15", what, row, (row.ctl_epoch, 0))


def _late_sentence(row: Row) -> Broken:
    return Broken("A15", f"term {row.ctl_epoch} sent {row.api} after a later term's request was acknowledged", row)
