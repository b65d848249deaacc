"""One channel per broker incarnation: one task, one connection, one request in flight, retried until answered.

Within a seal: UpdateMetadata with the live list alone (where LeaderAndIsr follows), LeaderAndIsr, UpdateMetadata of
partitions, StopReplica. A follower that is sent to a leader which is not in its live list ignores it for good, so
no LeaderAndIsr leaves before the present live list was acknowledged (KAFKA-4443). Changes go ahead of the turns of
a snapshot; seals are at least ``seal_interval_ms`` apart, the first one after quiet goes at once; while a decision of
several multis is committed they are ``bulk_seal_interval_ms`` apart (``UNHURRIED_S_MAX`` where nobody lacks a leader
by it), the first one too, and one follows its end. A follower hears of a new leader after the leader itself has
acknowledged (waiting ``LEADER_FIRST_S_MAX`` and a round at most).

A request is retried with the same bytes: brokers order by epochs (delivery policy *epoch-fenced*), and what changed
meanwhile follows. StopReplica alone is encoded anew, so that no log is deleted that has become the leader's. Only the
end of the incarnation ends the retries (Kafka ``RequestSendThread``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Final

from msgspec import Struct

from brokers.outbound.batches import REQUEST_ROWS_MAX
from brokers.outbound.delivery import BrokerResponse, Shared
from brokers.outbound.link import Link
from brokers.outbound.snapshot import Turn
from brokers.wire.errors import error_name
from brokers.wire.requests import EMPTY_BODY
from brokers.wire.responses import Errors
from brokers.wire.versions import Api
from state_machines.model.types import Broker
from state_machines.propagation.pending_requests import PendingRequests

log = logging.getLogger("regent.brokers")

LEADER_FIRST_S_MAX: Final = 1.0
"""How long followers are told later than their leader."""
HELD_POLL_S: Final = 0.005
INTRODUCED_ROWS_MAX: Final = 100_000
"""Partitions up to which a broker that came up hears of all topics before it hears what it leads: five requests."""

Rows = Mapping[int, bool] | range


class PropagationLag(Struct, frozen=True):
    """How far one broker is behind what is committed.

    ``oldest_s``: age of the oldest change that it has not acknowledged, 0 if none. ``partitions``: committed but
    unacknowledged, those of a running snapshot included. ``last_error``: why requests do not get through now.
    """

    broker_id: int
    broker_epoch: int
    connected: bool
    oldest_s: float
    partitions: int
    last_error: str | None

    @property
    def unreachable(self) -> bool:
        """Whether there is no connection, and the last attempt at one failed."""
        return not self.connected and self.last_error is not None


class Channel:
    """Tells one broker incarnation what its outbox holds."""

    def __init__(self, broker: Broker, pending: PendingRequests, shared: Shared) -> None:
        self.pending = pending
        self._shared = shared
        self._propagation = shared.propagation
        self._requests = shared.requests
        self._wake = asyncio.Event()
        self._link = Link(broker, shared, self._wake.set)
        self._next_batch_s = 0.0
        self._due = asyncio.Event()
        self._refused: set[int] = set()
        self._behind_since_s: float | None = None
        self._batched_since_s: float | None = None
        self._held: set[int] = set()
        self._held_at = (-1, -1, -1)
        self._held_since_s: float | None = None
        self._in_flight = 0
        self._busy = False
        self._turn_acknowledged = False

    # -- called by the controller

    @property
    def broker(self) -> Broker:
        """The registration."""
        return self._link.broker

    def update(self, broker: Broker) -> None:
        """The same incarnation registered other endpoints: they are used from the next connection on."""
        self._link.broker = broker

    def wake(self) -> None:
        """Something changed: look."""
        if self._behind_since_s is None and self._propagation.behind(self.pending):
            self._behind_since_s = self._shared.now_s()
        self._wake.set()

    def postpone(self) -> None:
        """More is coming: the next seal waits for it, for no longer than before where something waits already."""
        waiting = self._propagation.dirty(self.pending)
        interval_s = self._shared.round_s if waiting else self._shared.batch_interval_s
        self._next_batch_s = max(self._next_batch_s, self._shared.now_s() + interval_s)

    def flush(self) -> None:
        """Nothing more is coming for now: the next seal need not wait."""
        self._next_batch_s = 0.0
        self._due.set()

    @property
    def quiet(self) -> bool:
        """Whether the broker acknowledged everything."""
        return not self._busy and not self._propagation.behind(self.pending)

    def lag(self) -> PropagationLag:
        """How far the broker is behind."""
        since = [s for s in (self._batched_since_s, self._behind_since_s) if s is not None]
        oldest_s = self._shared.now_s() - min(since) if since and not self.quiet else 0.0
        backlog = max(self.pending.size + self._in_flight, self._propagation.feed.backlog(self.pending.position))
        return PropagationLag(
            broker_id=self.broker.id,
            broker_epoch=self.broker.epoch,
            connected=self._link.connected,
            oldest_s=oldest_s,
            partitions=backlog + self.pending.turn_end - self.pending.turn,
            last_error=self._link.last_error,
        )

    # -- the task

    async def run(self) -> None:
        """Delivers until cancelled."""
        try:
            while True:
                self._wake.clear()
                await self._step()
        finally:
            self._link.close()

    async def _step(self) -> None:
        """One seal and one turn at most, or one wait."""
        snapshot = self.pending.turn < self.pending.turn_end
        if snapshot and self.pending.blank:
            await self._sending(self._introduce())
        now_s, waiting = self._shared.now_s(), self._propagation.dirty(self.pending)
        if waiting and now_s >= self._next_batch_s:
            await self._sending(self._batch())
        elif waiting and not snapshot:
            await self._until_due(self._next_batch_s - now_s)
        elif not waiting and not snapshot:
            await self._idle()
        if snapshot:
            await self._sending(self._turn())

    async def _sending(self, work: Coroutine[None, None, None]) -> None:
        self._busy = True
        self._batched_since_s, self._behind_since_s = self._behind_since_s, None
        try:
            await work
        finally:
            self._busy = False
            self._in_flight = 0
        if self._batched_since_s is not None:
            self._shared.on_acknowledged(self._shared.now_s() - self._batched_since_s)
        if not self._propagation.behind(self.pending):
            self._behind_since_s = None
        elif self._behind_since_s is None:
            self._behind_since_s = self._batched_since_s
        self._batched_since_s = None
        self._shared.progressed()

    async def _until_due(self, seconds: float) -> None:
        """Waits for the next seal's time, or for :meth:`flush`."""
        self._due.clear()
        timer = asyncio.get_running_loop().call_later(seconds, self._due.set)
        try:
            await self._due.wait()
        finally:
            timer.cancel()

    async def _idle(self) -> None:
        """Waits for work; a lost connection is made again at once, so that ``connected`` tells the truth."""
        if self._link.lost:
            await self._link.reopen()
        if not self._wake.is_set():
            await self._wake.wait()

    async def _batch(self) -> None:
        shared, pending = self._shared, self.pending
        self._next_batch_s = shared.now_s() + shared.batch_interval_s
        await self._stop_former()
        if pending.lead:
            await self._send_live_list()
        held = self._held_back()
        cut, leads = shared.cut(), pending.take_lead(REQUEST_ROWS_MAX, held)
        if len(pending.lead) > len(held):
            self._next_batch_s = 0.0
            await self._send_leaders(leads, shared.batcher.leader_and_isr(leads))
            return
        stops = pending.take_stop(REQUEST_ROWS_MAX)
        await self._send_leaders(leads, shared.batcher.leader_and_isr(leads))
        withheld = self._propagation.withheld_from(pending)
        body, reached = shared.batcher.update_metadata(
            pending.position, cut, current=self._turn_acknowledged, withheld=withheld
        )
        if body is not None:
            await self._send_metadata(body)
        else:
            await self._send_live_list()
        pending.position, self._turn_acknowledged = reached, self._turn_acknowledged and reached < cut
        if stops:
            await self._send_stops(stops)

    def _held_back(self) -> set[int]:
        """Rows whose leader is told first, for a bounded time: a leader that does not answer holds nobody up."""
        propagation, now_s = self._propagation, self._shared.now_s()
        seen = propagation.acknowledged, propagation.feed.number, len(self.pending.lead)
        if seen != self._held_at:
            self._held, self._held_at = propagation.held(self.broker.id), seen
        held = self._held
        if not held:
            self._held_since_s = None
            return held
        self._held_since_s = self._held_since_s or now_s
        if now_s - self._held_since_s > LEADER_FIRST_S_MAX:
            return set()
        self._next_batch_s = now_s + max(self._shared.round_s, HELD_POLL_S)
        return held

    async def _introduce(self) -> None:
        """All topics, before anything else, as Kafka's controller does it.

        A broker that names its peers and knows no topic tells clients that theirs do not exist, for as long as it
        then takes to load its replicas.
        """
        pending, snapshot = self.pending, self.pending.snapshots
        self._turn_acknowledged = True
        while pending.introduced < pending.turn_end and self._propagation.view.present <= INTRODUCED_ROWS_MAX:
            turn = self._shared.snapshots.turn(self.broker.id, pending.introduced)
            await self._send_turn(turn)
            if pending.snapshots != snapshot:  # a later one begins anew
                return
            pending.introduced = turn.last
        pending.blank = False

    async def _turn(self) -> None:
        pending = self.pending
        await self._stop_former()
        await self._send_live_list()
        while new := pending.take_new(REQUEST_ROWS_MAX):  # the turn would tell them as old ones
            await self._send_leaders(new, self._shared.batcher.leader_and_isr(new))
            await self._send_live_list()
        turn = self._shared.snapshots.turn(self.broker.id, pending.turn)
        self._turn_acknowledged = True
        snapshot = pending.snapshots
        await self._send_leaders(range(turn.first, turn.last), turn.take(self.broker.id))
        if pending.snapshots == snapshot and turn.last > pending.introduced:  # what changed since is in the feed
            await self._send_turn(turn)
        if pending.snapshots == snapshot:  # topic ids that were given meanwhile are in a later one alone
            pending.turn = min(turn.last, pending.turn_end)

    # -- requests

    async def _send_turn(self, turn: Turn) -> None:
        metadata = turn.cautious if self._propagation.withheld_from(self.pending) else turn.metadata
        if metadata is not None:
            await self._send_metadata(metadata)

    async def _send_live_list(self) -> None:
        while self.pending.live_version != self._propagation.live_version:
            await self._send_metadata(EMPTY_BODY)

    async def _send_metadata(self, body: bytes) -> None:
        version, live = self._shared.live_list()
        request = partial(self._requests.update_metadata, body=body, live=live)
        told = self._propagation.feed.number
        errors = await self._link.deliver(Api.UPDATE_METADATA, request)
        if errors.top:
            self.pending.refused = told
        self._answered(errors, Api.UPDATE_METADATA, range(0))
        self.pending.live_version = version

    async def _send_leaders(self, rows: Rows, body: bytes | None) -> None:
        if body is None:
            return
        self._in_flight = len(rows)
        self.pending.sending = dict(rows) if isinstance(rows, dict) else {}
        try:
            errors = await self._link.deliver(Api.LEADER_AND_ISR, partial(self._requests.leader_and_isr, body=body))
        finally:
            self.pending.sending = {}
            self._propagation.acknowledged += 1
        self._answered(errors, Api.LEADER_AND_ISR, rows)
        self._shared.progress.set()

    async def _stop_former(self) -> None:
        """Replicas of former incarnations, before anything is said of the present one."""
        if self.pending.stop and (former := self._propagation.superseded(self.broker.id)):
            await self._send_stops(self.pending.take_stops(former[:REQUEST_ROWS_MAX]))

    async def _send_stops(self, entries: Mapping[int, bool]) -> None:
        sent = self._propagation.deletable(self.broker.id, entries)
        self._in_flight = len(sent)

        def request(correlation: int, broker_epoch: int) -> list[bytes]:
            nonlocal sent
            sent = self._propagation.deletable(self.broker.id, entries)
            return self._requests.stop_replica(correlation, broker_epoch, self._shared.batcher.stop_replica(sent))

        if sent:
            errors = await self._link.deliver(Api.STOP_REPLICA, request)
            self._answered(errors, Api.STOP_REPLICA, sent)
        self.pending.stopping = {}

    def _answered(self, errors: Errors, api: Api, rows: Rows) -> None:
        self._in_flight = 0
        if errors.top:
            self._link.last_error = f"answered {api.name} with {error_name(errors.top)}"
            if errors.top not in self._refused:
                self._refused.add(errors.top)
                log.warning("%s %s: the request had no effect there", self._link, self._link.last_error)
        if errors.top or api is not Api.UPDATE_METADATA:
            failed = tuple(self._shared.batcher.rows_of(errors.failed, rows))
            self._shared.on_event(BrokerResponse(self.broker.id, self.broker.epoch, api, errors.top, failed, rows))
