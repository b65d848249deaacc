"""Finds dead brokers that matter: those that host replicas or that plans wait for, and since when each is dead."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import anyio
import msgspec

from configs.settings import Settings
from controller.journal.query import HISTORY_BYTES_MAX, rows_with
from controller.journal.reader import LINE_BYTES_MAX, parsed
from controller.journal.segments import SegmentName, folder_in, segments_in
from controller.kafka.kinds import reassign
from controller.kafka.term.term import Term
from controller.operator.counts import Counts
from state_machines.decisions.plan_progress import ENDED
from state_machines.journal.events import Kind, Row
from state_machines.model.cluster import Cluster
from state_machines.procedures.record import Record

NEEDLE: Final = b'"kind":"BROKER_'
"""Begin of the kinds of rows that brokers have alone."""


def departures(folder: Path, cluster: str, epoch: int) -> dict[int, int]:
    """Returns the times, in milliseconds, at which brokers died that had not come back when term ``epoch`` began.

    It reads at most ``HISTORY_BYTES_MAX`` of the newest files, a megabyte at a time: the daemon calls it beside its
    loop.
    """
    found: dict[int, int] = {}
    for path in _joined(folder, cluster, epoch):
        for row in rows_with(path, NEEDLE):
            if row.broker is not None and row.kind == Kind.BROKER_DOWN:
                found[row.broker] = row.ts_us // 1_000
            elif row.broker is not None and row.kind == Kind.BROKER_UP:
                found.pop(row.broker, None)
    return found


def _joined(folder: Path, cluster: str, epoch: int) -> Iterator[Path]:
    """Yields the files of the terms before ``epoch``, oldest first, as far back as no epoch is missing."""
    chosen: list[Path] = []
    left, expected = HISTORY_BYTES_MAX, epoch
    for path in reversed(segments_in(folder)):
        name = SegmentName.of(path)
        if name is None or name.epoch >= epoch or _cluster_of(path) != cluster:
            continue
        if name.epoch < expected - 1 or left <= 0:
            break
        expected = name.epoch
        left -= path.stat().st_size
        chosen.append(path)
    yield from reversed(chosen)


def _cluster_of(path: Path) -> str | None:
    """Returns the cluster of a file's rows; None where the first one cannot be read."""
    with path.open("rb") as file:
        row = parsed(file.readline(LINE_BYTES_MAX))
    return row.cluster if isinstance(row, Row) else None


log = logging.getLogger("regent.view")

PLANS_MAX: Final = 4
"""Plans whose moves are looked through for dead brokers."""


class Dead(NamedTuple):
    """A dead broker. ``since_ms``: None where it was dead before ``began_ms``, when the term began; 0: not known."""

    broker: int
    hosts: int
    plans: tuple[int, ...]
    since_ms: int | None
    began_ms: int

    @property
    def when(self) -> str:
        """Returns since when it is dead, in words that follow "dead"; empty without a term."""
        if self.since_ms is not None:
            return f" since {in_words(self.since_ms)}"
        return f" since before this term began at {in_words(self.began_ms)}" if self.began_ms else ""


def in_words(ms: int) -> str:
    """Returns a time of the wall clock."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def dead_brokers(cluster: Cluster, counts: Counts | None, term: Term | None) -> list[Dead]:
    """Returns the dead brokers that host replicas, or that running plans add replicas on, by id."""
    hosts: Mapping[int, int] = counts.hosts if counts is not None else {}
    plans = _awaited(cluster, term)
    found = sorted(broker for broker in {*hosts, *plans} if broker not in cluster.brokers)
    return [dead(broker, term, hosts.get(broker, 0), tuple(plans.get(broker, ()))) for broker in found]


def dead(broker: int, term: Term | None, hosts: int = 0, plans: tuple[int, ...] = ()) -> Dead:
    """Describes one dead broker."""
    departed = term.controller.departed if term is not None else None
    if departed is None:
        return Dead(broker, hosts, plans, None, 0)
    return Dead(broker, hosts, plans, departed.since_ms(broker), departed.began_ms)


def _awaited(cluster: Cluster, term: Term | None) -> dict[int, list[int]]:
    """Maps dead brokers to the running plans that add replicas on them."""
    found: dict[int, list[int]] = {}
    engine = term.procedures.engine_or_none if term is not None else None
    live = engine.live() if engine is not None else ()
    running = (one for one in live if one.kind == reassign.NAME and one.locked)
    for record in islice(running, PLANS_MAX):
        for broker in awaited_by(record, cluster):
            found.setdefault(broker, []).append(record.pid)
    return found


def awaited_by(record: Record, cluster: Cluster) -> list[int]:
    """Returns the dead brokers on which a plan still adds replicas."""
    try:
        moves = reassign.plan_of(record).moves
    except msgspec.DecodeError:
        return []
    added = {broker for move in moves if move.status not in ENDED for broker in move.added}
    return sorted(broker for broker in added if broker not in cluster.brokers)


class EarlierDeaths:
    """Lets each term know, once, when brokers died in this daemon's terms just before it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known_epoch = 0

    async def refresh(self, term: Term, cluster_id: str | None) -> None:
        """Reads the journal in a thread, once for each term; a journal that cannot be read has no times."""
        epoch = term.claim.epoch
        if not self._settings.journal.enabled or cluster_id is None or epoch == self._known_epoch:
            return
        self._known_epoch = epoch
        folder = folder_in(self._settings.state.directory)
        try:
            found = await anyio.to_thread.run_sync(departures, folder, cluster_id, epoch)
        except OSError as error:
            log.warning("the journal in %s cannot be read, times of earlier deaths are not known: %s", folder, error)
            return
        live = term.cluster.brokers
        term.controller.departed.learn({broker: ms for broker, ms in found.items() if broker not in live})
