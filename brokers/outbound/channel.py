"""Sends requests to one broker incarnation: one task, one connection, one request in flight, retried until a response.

The order within a batch is UpdateMetadata with the live list alone (where LeaderAndIsr follows), LeaderAndIsr,
UpdateMetadata of partitions, StopReplica. A follower whose new leader is not in its live list ignores the request for
good. So no LeaderAndIsr leaves before the broker has acknowledged the current live list (KAFKA-4443).

Changes go ahead of the turns of a snapshot. Batches are at least ``seal_interval_ms`` apart; the first one after a
pause starts at once. During the commit of a decision of several multis they are ``bulk_batch_interval_ms`` apart, or
``UNHURRIED_S_MAX`` where no partition lacks a leader by it. That holds for the first one, too, and one follows the
commit's end. A follower gets LeaderAndIsr after its new leader has acknowledged, or after ``LEADER_FIRST_S_MAX`` and a
round.

A request is retried with the same bytes: brokers order by epochs (delivery policy *epoch-fenced*), and newer changes
follow. StopReplica alone is encoded again, so that no log is deleted that has become the leader's. Only the end of the
incarnation ends the retries (Kafka ``RequestSendThread``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from brokers.outbound.batches import REQUEST_ROWS_MAX
from brokers.outbound.delivery import BrokerResponse, LogsStopped, Shared
from brokers.outbound.link import Link
from brokers.outbound.snapshot import Turn
from brokers.wire.errors import error_name
from brokers.wire.requests import EMPTY_BODY, Errors
from brokers.wire.versions import Api
from state_machines.model.types import Broker, TopicPartition
from state_machines.propagation.pending_requests import PendingRequests

log = logging.getLogger("regent.brokers")

LEADER_FIRST_S_MAX: Final = 1.0
"""Longest wait of followers for the acknowledgement of their leader."""
HELD_POLL_S: Final = 0.005
INTRODUCED_ROWS_MAX: Final = 100_000
"""Most partitions of which a started broker gets all metadata before its leaderships: five requests."""

Rows = Mapping[int, bool] | range


class PropagationLag(Struct, frozen=True):
    """The lag of one broker behind the committed state.

    ``oldest_s`` is the age of the oldest unacknowledged change, 0 without one. ``partitions`` counts committed but
    unacknowledged ones, those of a running snapshot included. ``last_error`` is the cause of failing requests.
    """

    broker_id: int
    broker_epoch: int
    connected: bool
    oldest_s: float
    partitions: int
    last_error: str | None

    @property
    def unreachable(self) -> bool:
        """Returns whether there is no connection, and the last attempt at one failed."""
        return not self.connected and self.last_error is not None


class Channel:
    """Sends its pending requests to one broker incarnation."""

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
        """Returns the broker's registration."""
        return self._link.broker

    def update(self, broker: Broker) -> None:
        """Uses new endpoints of the same incarnation from the next connection on."""
        self._link.broker = broker

    def wake(self) -> None:
        """Checks for new changes."""
        if self._behind_since_s is None and self._propagation.behind(self.pending):
            self._behind_since_s = self._shared.now_s()
        self._wake.set()

    def postpone(self) -> None:
        """Delays the next batch for more changes; where some wait already, by no more than a round."""
        waiting = self._propagation.dirty(self.pending)
        interval_s = self._shared.round_s if waiting else self._shared.batch_interval_s
        self._next_batch_s = max(self._next_batch_s, self._shared.now_s() + interval_s)

    def flush(self) -> None:
        """Ends the delay of the next batch, because no more changes are expected."""
        self._next_batch_s = 0.0
        self._due.set()

    @property
    def quiet(self) -> bool:
        """Returns whether the broker has acknowledged everything."""
        return not self._busy and not self._propagation.behind(self.pending)

    def lag(self) -> PropagationLag:
        """Returns the broker's lag."""
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
        """Sends batches and turns until cancelled."""
        try:
            while True:
                self._wake.clear()
                await self._step()
        finally:
            self._link.close()

    async def _step(self) -> None:
        """Sends one batch and one turn at most, or waits once."""
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
        """Waits for the next batch's time, or for :meth:`flush`."""
        self._due.clear()
        timer = asyncio.get_running_loop().call_later(seconds, self._due.set)
        try:
            await self._due.wait()
        finally:
            timer.cancel()

    async def _idle(self) -> None:
        """Waits for work; reopens a lost connection at once, so that ``connected`` is true to the broker's state."""
        if self._link.lost:
            await self._link.reopen()
        if not self._wake.is_set():
            await self._wake.wait()

    async def _batch(self) -> None:
        shared, pending = self._shared, self.pending
        self._next_batch_s = shared.now_s() + shared.batch_interval_s
        await self._stop_earlier()
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
            await self._send_metadata(body, reached - pending.position)
        else:
            await self._send_live_list()
        pending.position, self._turn_acknowledged = reached, self._turn_acknowledged and reached < cut
        if stops:
            await self._send_stops(stops)
        if pending.logs:
            await self._stop_logs(pending.take_logs(REQUEST_ROWS_MAX))

    def _held_back(self) -> set[int]:
        """Returns rows that wait for their leader, for a bounded time: a leader that does not respond blocks no one."""
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
            if len(self.pending.lead) <= REQUEST_ROWS_MAX:  # all of them go now: later ones have a wait of their own
                self._held_since_s = None
            return set()
        self._next_batch_s = now_s + max(self._shared.round_s, HELD_POLL_S)
        return held

    async def _introduce(self) -> None:
        """Sends all topics before anything else, as Kafka's controller does.

        A broker that knows its peers but no topic responds to clients that their topics do not exist. It would do so
        for as long as it takes to load its replicas.
        """
        pending, snapshot = self.pending, self.pending.snapshots
        self._turn_acknowledged = True
        while pending.introduced < pending.turn_end and self._propagation.view.present <= INTRODUCED_ROWS_MAX:
            turn = self._shared.snapshots.turn(self.broker.id, pending.introduced)
            await self._send_turn(turn)
            if pending.snapshots != snapshot:  # a later snapshot starts again
                return
            pending.introduced = turn.last
        pending.blank = False

    async def _turn(self) -> None:
        pending = self.pending
        await self._stop_earlier()
        await self._send_live_list()
        while new := pending.take_new(REQUEST_ROWS_MAX):  # the turn would send them as old ones
            await self._send_leaders(new, self._shared.batcher.leader_and_isr(new))
            await self._send_live_list()
        turn = self._shared.snapshots.turn(self.broker.id, pending.turn)
        self._turn_acknowledged = True
        snapshot = pending.snapshots
        await self._send_leaders(range(turn.first, turn.last), turn.take(self.broker.id))
        if pending.snapshots == snapshot and turn.last > pending.introduced:  # later changes are in the feed
            await self._send_turn(turn)
        if pending.snapshots == snapshot:  # only a later snapshot has the topic ids that were learned meanwhile
            pending.turn = min(turn.last, pending.turn_end)

    # -- requests

    async def _send_turn(self, turn: Turn) -> None:
        metadata = turn.cautious if self._propagation.withheld_from(self.pending) else turn.metadata
        if metadata is not None:
            await self._send_metadata(metadata, turn.last - turn.first)

    async def _send_live_list(self) -> None:
        while self.pending.live_version != self._propagation.live_version:
            await self._send_metadata(EMPTY_BODY, 0)

    async def _send_metadata(self, body: bytes, partitions: int) -> None:
        version, live = self._shared.live_list()
        request = partial(self._requests.update_metadata, body=body, live=live)
        sent = self._propagation.feed.number
        errors = await self._link.deliver(Api.UPDATE_METADATA, partitions, request)
        if errors.top:
            self.pending.refused = sent
        self._on_response(errors, Api.UPDATE_METADATA, range(0))
        self.pending.live_version = version

    async def _send_leaders(self, rows: Rows, body: bytes | None) -> None:
        if body is None:
            return
        self._in_flight = len(rows)
        self.pending.sending = dict(rows) if isinstance(rows, dict) else {}
        try:
            request = partial(self._requests.leader_and_isr, body=body)
            errors = await self._link.deliver(Api.LEADER_AND_ISR, len(rows), request)
        finally:
            self.pending.sending = {}
            self._propagation.acknowledged += 1
        self._on_response(errors, Api.LEADER_AND_ISR, rows)
        self._shared.progress.set()

    async def _stop_earlier(self) -> None:
        """Stops replicas of a topic's earlier incarnations before the first request about the current one."""
        if self.pending.stop and (earlier := self._propagation.superseded(self.broker.id)):
            await self._send_stops(self.pending.take_stops(earlier[:REQUEST_ROWS_MAX]))

    async def _send_stops(self, entries: Mapping[int, bool]) -> None:
        sent = self._propagation.deletable(self.broker.id, entries)
        self._in_flight = len(sent)

        def request(correlation: int, broker_epoch: int) -> list[bytes]:
            nonlocal sent
            sent = self._propagation.deletable(self.broker.id, entries)
            return self._requests.stop_replica(correlation, broker_epoch, self._shared.batcher.stop_replica(sent))

        if sent:
            errors = await self._link.deliver(Api.STOP_REPLICA, len(sent), request)
            self._on_response(errors, Api.STOP_REPLICA, sent)
        self.pending.stopping = {}

    async def _stop_logs(self, names: Sequence[TopicPartition]) -> None:
        """Has the broker delete logs by name. They are judged at each attempt: one may be needed by then."""
        judge, sent = self._shared.judge_logs, dict[TopicPartition, int]()
        self._in_flight = len(names)

        def request(correlation: int, broker_epoch: int) -> list[bytes]:
            nonlocal sent
            sent = dict(judge(self.broker.id, names))
            return self._requests.stop_replica(correlation, broker_epoch, self._shared.batcher.stop_logs(sent))

        errors = Errors(0, [])
        if judge(self.broker.id, names):
            errors = await self._link.deliver(Api.STOP_REPLICA, len(names), request)
            self._on_response(errors, Api.STOP_REPLICA, {})
        refused: dict[TopicPartition, int] = {TopicPartition(str(f.topic), f.partition): f.error for f in errors.failed}
        if errors.top:
            refused = dict.fromkeys(sent, errors.top)
        acknowledged = tuple(name for name in sent if name not in refused)
        spared = tuple(name for name in names if name not in sent)
        known = self.broker.id, self.broker.epoch, errors.top
        self._shared.on_event(LogsStopped(*known, acknowledged, refused, spared))

    def _on_response(self, errors: Errors, api: Api, rows: Rows) -> None:
        self._in_flight = 0
        if errors.top:
            self._link.last_error = f"responded to {api.name} with {error_name(errors.top)}"
            if errors.top not in self._refused:
                self._refused.add(errors.top)
                log.warning("%s %s: the request had no effect there", self._link, self._link.last_error)
        if errors.top or api is not Api.UPDATE_METADATA:
            failed = tuple(self._shared.batcher.rows_of(errors.failed, rows))
            self._shared.on_event(BrokerResponse(self.broker.id, self.broker.epoch, api, errors.top, failed, rows))
