"""Lists brokers: the live ones, and dead ones that host replicas or that plans wait for, since when they are dead."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

import anyio
import msgspec
from fastapi import FastAPI, Response
from pydantic import Field

from brokers.outbound.channel import PropagationLag
from configs.settings import Settings
from controller.daemon.preflight.listeners import PROTOCOL_NAMES
from controller.http.documents import NotFound, document
from controller.http.models import Document, Item
from controller.http.procedures import time_of
from controller.journal.query import HISTORY_BYTES_MAX, rows_with
from controller.journal.reader import LINE_BYTES_MAX, parsed
from controller.journal.segments import SegmentName, folder_in, segments_in
from controller.kafka.procedures import reassign
from controller.kafka.term.term import Term
from controller.operator.counts import Counts
from controller.operator.present import Present
from state_machines.decisions.plan_progress import ENDED
from state_machines.journal.events import Kind, Row
from state_machines.model.cluster import Cluster
from state_machines.model.types import Broker as Registered
from state_machines.procedures.record import Record

log = logging.getLogger("regent.view")

BROKERS_MAX = 500
"""Brokers that one query names; with their epochs they fit into the headers that are read."""
NEEDLE: Final = b'"kind":"BROKER_'
"""Begin of the kinds of rows that brokers have alone."""
PLANS_MAX: Final = 4
"""Plans whose moves are looked through for dead brokers."""
BrokerId = Annotated[int, Field(ge=0, le=2**31 - 1)]
Lags = dict[int, PropagationLag]


class Listener(Item):
    """One endpoint of a broker."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


class Broker(Item):
    """A broker and its unacknowledged changes. A dead one hosts replicas, or a plan waits for it; it has no epoch.

    An unreachable one is registered, as its session lives, but accepts no connection.
    """

    id: int
    state: Literal["live", "unreachable", "shutting down", "dead"] = "live"
    epoch: int | None = None
    rack: str | None = None
    cordoned: bool = Field(False, description="regent places no further replica on it")
    drained: bool = Field(False, description="it leads only where no other broker can")
    ibp: str | None = None
    listeners: list[Listener] = []
    leads: int = Field(0, description="of a dead broker: partitions that it led last and that have no leader")
    hosts: int = Field(0, description="replicas that are assigned to it")
    queued: int = 0
    unacknowledged_partitions: int = 0
    propagation_age_s: float = Field(0.0, description="of the oldest change that it has not acknowledged; 0: none")
    refuses: int = Field(0, description="partitions whose replica it refuses, see regent explain")
    last_error: str | None = Field(None, description="why requests do not reach it now")
    dead_since: datetime | None = Field(
        None, description="when a dead broker left ZooKeeper; absent where this daemon did not see it go"
    )
    dead_before: datetime | None = Field(
        None, description="instead of deadSince: when the daemon's term began, and the broker was dead already"
    )
    awaited_by: list[int] = Field([], description="pids of running plans that add replicas on this dead broker")


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


class BrokerView:
    """The brokers of a model as operators see them."""

    def __init__(self, present: Present) -> None:
        self._present = present

    def listed(self) -> list[Broker]:
        """Lists brokers by id: the live ones, and the dead ones with assigned replicas."""
        cluster, term = self._present.cluster(), self._present.term()
        counts = self._present.reader.counted.of(cluster) or Counts()
        lags = lags_of(term)
        leaving = cluster.shutting_down
        found = {b: broker_item(live, b in leaving, counts, lags.get(b)) for b, live in cluster.brokers.items()}
        found |= {one.broker: dead_broker_item(one, counts) for one in dead_brokers(cluster, counts, term)}
        for broker in cluster.refusals.brokers():
            if broker in found:
                found[broker] = found[broker].model_copy(update={"refuses": len(cluster.refusals.on(broker))})
        cordoned = term.cluster.cordoned if term is not None else frozenset()
        for broker in cordoned & found.keys():
            marks = {"cordoned": True, "drained": broker in cluster.drained}
            found[broker] = found[broker].model_copy(update=marks)
        return [item for _, item in sorted(found.items())]

    def described(self, broker: int) -> Broker:
        """Describes one broker; raises :class:`NotFound`."""
        for found in self.listed():
            if found.id == broker:
                return found
        raise NotFound(f"broker {broker} is not registered, and hosts no replica", "see 'regent list brokers'")

    def stale(self) -> str | None:
        """Returns why the list may be old; None while it is not."""
        return self._present.stale()


def add_broker_routes(app: FastAPI, view: BrokerView) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/brokers", response_model=Document[Broker])
    async def brokers() -> Response:
        return document("Broker", view.listed(), stale=view.stale())

    @app.get("/v1/brokers/{broker}", response_model=Document[Broker])
    async def broker(broker: int) -> Response:
        return document("Broker", [view.described(broker)], stale=view.stale())


def broker_item(broker: Registered, leaving: bool, counts: Counts, lag: PropagationLag | None) -> Broker:
    """Builds the item of a live broker, with the lag of the propagation to it."""
    return Broker(
        id=broker.id,
        state="shutting down" if leaving else "unreachable" if lag is not None and lag.unreachable else "live",
        epoch=broker.epoch,
        rack=broker.rack,
        listeners=[
            Listener(name=e.listener, host=e.host, port=e.port, security_protocol=PROTOCOL_NAMES[e.security_protocol])
            for e in broker.endpoints
        ],
        leads=counts.leads[broker.id],
        hosts=counts.hosts[broker.id],
        queued=lag.partitions if lag is not None else 0,
        unacknowledged_partitions=lag.partitions if lag is not None else 0,
        propagation_age_s=lag.oldest_s if lag is not None else 0.0,
        last_error=lag.last_error if lag is not None else None,
    )


def dead_broker_item(found: Dead, counts: Counts) -> Broker:
    """Builds the item of a broker that is not registered, and hosts replicas or is awaited by a plan."""
    return Broker(
        id=found.broker,
        state="dead",
        leads=counts.leads[found.broker],
        hosts=found.hosts,
        dead_since=time_of(found.since_ms or 0),
        dead_before=time_of(found.began_ms) if found.since_ms is None else None,
        awaited_by=list(found.plans),
    )


def lags_of(term: Term | None) -> Lags:
    """Returns the lag of the propagation to each broker; none without a term."""
    return term.channels.lag() if term is not None else {}


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
