"""Propagates each change of the controller to every broker that needs it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from brokers.outbound.channel import Channel, PropagationLag
from brokers.outbound.delivery import (
    ChannelFailed,
    ChannelSettings,
    JudgeLogs,
    OnAcknowledged,
    OnEvent,
    OnRequest,
    Shared,
)
from brokers.transport import TcpTransport, Transport
from state_machines.model.decision import Change, ReplicaMove
from state_machines.model.types import Broker, Endpoint, TopicPartition
from state_machines.propagation.propagation import Propagation
from state_machines.propagation.view import ClusterView

log = logging.getLogger("regent.brokers")


class Channels:
    """All channels of one term.

    Only the methods that await acknowledgements, and :meth:`close`, wait.

    ``gate`` is checked before every write to a socket: nothing is sent while it returns False. ``on_event`` gets the
    responses. The caller must change the model before it propagates the change, without an await between the two.
    """

    def __init__(
        self,
        cluster: ClusterView,
        settings: ChannelSettings,
        gate: Callable[[], bool],
        on_event: OnEvent,
        transport: Transport | None = None,
        on_request: OnRequest = lambda _delivered: None,
        on_acknowledged: OnAcknowledged = lambda _seconds: None,
    ) -> None:
        self._propagation = Propagation(cluster)
        transport = transport or TcpTransport()
        self._shared = Shared(self._propagation, settings, transport, gate, on_event, on_request, on_acknowledged)
        self._channels: dict[int, Channel] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    # -- brokers

    def add(self, broker: Broker) -> None:
        """Adds a channel to a new broker incarnation, or updates the endpoints of the same one.

        A new incarnation has no metadata: call :meth:`snapshot` for it.
        """
        known = self._channels.get(broker.id)
        if known is not None and known.broker.epoch == broker.epoch:
            known.update(broker)
            self.live_list_changed()
            return
        if known is not None:
            self.remove(broker.id)
        channel = Channel(broker, self._propagation.add(broker.id), self._shared)
        self._channels[broker.id] = channel
        task = asyncio.create_task(channel.run(), name=f"channel to broker {broker.id}")
        self._tasks[broker.id] = task
        task.add_done_callback(lambda done: self._ended(broker.id, done))
        self._wake()

    def remove(self, broker_id: int) -> None:
        """Ends the channel of a broker that is gone, with everything that waited for it."""
        if self._channels.pop(broker_id, None) is not None:
            self._propagation.remove(broker_id)
            self._end(self._tasks.pop(broker_id))
            self._shared.progress.set()
            self._wake()

    @property
    def own_listeners(self) -> frozenset[str]:
        """Returns the names of the listeners on which brokers reach the controller."""
        return frozenset(endpoint.listener for endpoint in self._shared.settings.own_endpoints)

    def show_endpoint(self, endpoint: Endpoint | None) -> bool:
        """Lists the controller with this endpoint, in place of one of the same listener; returns whether it is new."""
        own = self._shared.settings.own_endpoints
        listed = own if endpoint is None else (*(e for e in own if e.listener != endpoint.listener), endpoint)
        if listed == self._shared.own_endpoints:
            return False
        self._shared.own_endpoints = listed
        self.live_list_changed()
        return True

    def live_list_changed(self) -> None:
        """Sends the whole live list to every broker, after registrations, endpoints or racks changed."""
        self._propagation.live_list_changed()
        self._wake()

    # -- lost topic ids

    def withhold(self, topics: Iterable[int]) -> None:
        """Withholds the metadata of these topics from each broker until :meth:`permit_metadata`."""
        self._propagation.withhold(topics)

    def permit_metadata(self, broker_ids: Iterable[int]) -> list[int]:
        """Permits the metadata of all topics for brokers whose query is done; returns those that are new."""
        pending = self._propagation.pending
        fresh = [b for b in broker_ids if b in pending and not pending[b].queried]
        for broker_id in fresh:
            pending[broker_id].queried = True
        return fresh

    def hand_out(self, topics: Iterable[int]) -> None:
        """Ends the withholding of topics that have an id, or are gone; the caller propagates them."""
        self._propagation.hand_out(topics)

    # -- propagation

    def propagate(self, changes: Sequence[Change], moves: Sequence[ReplicaMove]) -> None:
        """Propagates changes and moves that the model has now."""
        self._propagation.propagate(changes, moves)
        self._wake()

    @contextmanager
    def more_coming(self, *, urgent: bool = True) -> Iterator[None]:
        """Delays batches during the commit of a large decision: few large requests cost less than many small ones.

        A decision that is not ``urgent``, because no partition lacks a leader by it, is propagated at its end, or after
        ``UNHURRIED_S_MAX``. Other changes for a broker are not delayed.
        """
        self._shared.more_coming += 1
        self._shared.unhurried += not urgent
        for channel in self._channels.values():
            channel.postpone()
        try:
            yield
        finally:
            self._shared.more_coming -= 1
            self._shared.unhurried -= not urgent
            for channel in self._channels.values() if not self._shared.more_coming else ():
                channel.flush()

    def judge_logs_by(self, judge: JudgeLogs) -> None:
        """Sets the judge of StopReplica by name; without one no log is deleted by name."""
        self._shared.judge_logs = judge

    def stop_logs(self, broker_id: int, names: Iterable[TopicPartition]) -> bool:
        """Has a broker delete logs by name; the response is a :class:`LogsStopped`. Returns False without a channel."""
        channel = self._channels.get(broker_id)
        if channel is not None:
            channel.pending.add_logs(names)
            channel.wake()
        return channel is not None

    def metadata_changed(self, rows: Iterable[int]) -> None:
        """Sends UpdateMetadata of rows to every broker, without LeaderAndIsr."""
        self._propagation.metadata_changed(rows)
        self._wake()

    def leader_and_isr_to(self, broker_id: int, rows: Iterable[int], is_new: bool = False) -> None:
        """Sends LeaderAndIsr with the current leadership of rows to one broker."""
        self._propagation.leader_and_isr_to(broker_id, rows, is_new=is_new)
        self._wake()

    def snapshot(self, broker_ids: Iterable[int] | None = None, *, came_up: bool = False) -> None:
        """Sends the whole model to the brokers (None: all), in turns; changes go ahead of them.

        Brokers that ``came_up`` have no metadata: they get all topics first, within ``INTRODUCED_ROWS_MAX``.
        """
        for broker_id in self._channels if broker_ids is None else broker_ids:
            if broker_id in self._channels:
                self._propagation.snapshot(broker_id, blank=came_up)
        self._wake()

    def _wake(self) -> None:
        for channel in self._channels.values():
            channel.wake()

    # -- waits and queries

    async def quiesced(self, timeout_s: float) -> frozenset[int]:
        """Waits until every broker has acknowledged everything; returns those that have not in time (empty = done)."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._behind():
                    self._shared.progress.clear()
                    await self._shared.progress.wait()
        except TimeoutError:
            pass
        return self._behind()

    @property
    def quiet(self) -> bool:
        """Checks whether every broker has acknowledged everything."""
        return not self._behind()

    def _behind(self) -> frozenset[int]:
        return frozenset(broker_id for broker_id, channel in self._channels.items() if not channel.quiet)

    async def leaders_acknowledged(self, rows: Iterable[int], timeout_s: float) -> frozenset[int]:
        """Waits until the current leaders of rows have acknowledged; returns the leaders that have not in time."""
        waiting = self._propagation.leaders_waiting(rows)
        try:
            async with asyncio.timeout(timeout_s):
                while waiting:
                    self._shared.progress.clear()
                    await self._shared.progress.wait()
                    waiting = self._propagation.still_waiting(waiting)
        except TimeoutError:
            return frozenset().union(*waiting.values())
        return frozenset()

    async def stopped(self, rows: Collection[int], timeout_s: float) -> bool:
        """Waits until brokers have acknowledged StopReplica of rows; returns False after the time-out."""
        return await self._until(lambda: not self._propagation.unstopped(rows), timeout_s)

    async def metadata_acknowledged(self, rows: Iterable[int], timeout_s: float) -> bool:
        """Waits until every broker has acknowledged the current metadata of rows; returns False after the time-out."""
        number = self._propagation.number_of(rows)
        return await self._until(lambda: self._propagation.acknowledged_to(number), timeout_s)

    async def metadata_shown(self, rows: Iterable[int], timeout_s: float) -> frozenset[int]:
        """Waits until one broker has acknowledged the current metadata of rows; returns the rows that none has in time.

        Without any broker it does not wait.
        """
        numbers = {i: self._propagation.number_of((i,)) for i in rows}
        last = max(numbers.values(), default=0)
        if await self._until(lambda: self._propagation.shown(last), timeout_s):
            return frozenset()
        return frozenset(i for i, number in numbers.items() if not self._propagation.shown(number))

    def is_shown(self, rows: Iterable[int]) -> bool:
        """Returns whether a broker has acknowledged the current metadata of rows, or there is none."""
        return self._propagation.shown(self._propagation.number_of(rows))

    async def _until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Waits until acknowledgements make a condition hold; returns False after the time-out."""
        try:
            async with asyncio.timeout(timeout_s):
                while not holds():
                    self._shared.progress.clear()
                    await self._shared.progress.wait()
        except TimeoutError:
            return False
        return True

    def not_ended(self, rows: Collection[int]) -> frozenset[int]:
        """Returns brokers with a pending StopReplica of ``rows``, or without an acknowledgement of their end."""
        return self._propagation.not_ended(rows)

    async def ended(self, rows: Collection[int]) -> None:
        """Waits until :meth:`not_ended` returns no broker; it does not wait for brokers that are gone."""
        while self._propagation.not_ended(rows):
            self._shared.progress.clear()
            await self._shared.progress.wait()

    def unacknowledged_by(self, row: int) -> frozenset[int]:
        """Returns the brokers that have not acknowledged the last change of a row."""
        return self._propagation.unacknowledged_by(row)

    def lag(self) -> dict[int, PropagationLag]:
        """Returns the lag of each broker."""
        return {broker_id: channel.lag() for broker_id, channel in sorted(self._channels.items())}

    # -- the end

    async def close(self) -> None:
        """Ends all channels, a request in flight included."""
        for broker_id in list(self._channels):
            self.remove(broker_id)
        if self._ending:
            await asyncio.wait(self._ending)

    def _end(self, task: asyncio.Task[None]) -> None:
        if not task.done():
            self._ending.add(task)
            task.cancel()

    def _ended(self, broker_id: int, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the channel to broker %d ended by an error; the term must end", broker_id, exc_info=error)
            self._shared.on_event(ChannelFailed(broker_id, repr(error)))
