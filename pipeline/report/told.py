"""Reads the requests that told brokers of decisions: few numbers of each, and of those of one millisecond only one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.report.acknowledged import EVERY, Front, Requests, lasting
from pipeline.report.terms import Ints, Terms
from state_machines.journal.events import Kind

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
