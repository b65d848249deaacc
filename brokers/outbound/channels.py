"""Channels: what the controller says once, told to every broker that must hear it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from brokers.outbound.channel import Channel, PropagationLag
from brokers.outbound.delivery import ChannelFailed, ChannelSettings, OnAcknowledged, OnEvent, OnRequest, Shared
from brokers.transport import TcpTransport, Transport
from state_machines.model.decision import Change, ReplicaMove
from state_machines.model.types import Broker, Endpoint
from state_machines.propagation.propagation import Propagation
from state_machines.propagation.view import ClusterView

log = logging.getLogger("regent.brokers")


class Channels:
    """All channels of one term.

    Only what waits for brokers, and :meth:`close`, waits.

    ``gate`` is asked before every write to a socket: while it says no, nothing is sent. ``on_event`` gets answers.
    The model must be changed before its change is told, without an await between the two.
    """

    def __init__(
        self,
        cluster: ClusterView,
        settings: ChannelSettings,
        gate: Callable[[], bool],
        on_event: OnEvent,
        transport: Transport | None = None,
        on_request: OnRequest = lambda _broker, _seconds: None,
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
        """A broker registered: a new incarnation gets a new channel; the same one with other endpoints is updated.

        A new incarnation knows nothing: call :meth:`snapshot` for it.
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
        """A broker is gone: its channel ends at once, with everything that waited for it."""
        if self._channels.pop(broker_id, None) is not None:
            self._propagation.remove(broker_id)
            self._end(self._tasks.pop(broker_id))
            self._shared.progress.set()
            self._wake()

    @property
    def own_listeners(self) -> frozenset[str]:
        """Listeners on which brokers reach the controller."""
        return frozenset(endpoint.listener for endpoint in self._shared.settings.own_endpoints)

    def show_endpoint(self, endpoint: Endpoint | None) -> bool:
        """Lists the controller with one more endpoint, or with this one of a name that it has; whether that is news."""
        own = self._shared.settings.own_endpoints
        listed = own if endpoint is None else (*(e for e in own if e.listener != endpoint.listener), endpoint)
        if listed == self._shared.own_endpoints:
            return False
        self._shared.own_endpoints = listed
        self.live_list_changed()
        return True

    def live_list_changed(self) -> None:
        """Registrations, endpoints or racks changed: everybody hears the whole list."""
        self._propagation.live_list_changed()
        self._wake()

    # -- lost topic ids

    def withhold(self, topics: Iterable[int]) -> None:
        """No broker hears the metadata of these topics before it is said to have answered (:meth:`answered`)."""
        self._propagation.withhold(topics)

    def answered(self, broker_ids: Iterable[int]) -> list[int]:
        """Brokers that may hear of all topics from now on; returns those that did not before."""
        boxes = self._propagation.pending
        fresh = [b for b in broker_ids if b in boxes and not boxes[b].queried]
        for broker_id in fresh:
            boxes[broker_id].queried = True
        return fresh

    def hand_out(self, topics: Iterable[int]) -> None:
        """Topics that have an id, or are gone: every broker may hear of them; the caller has them told."""
        self._propagation.hand_out(topics)

    # -- telling

    def propagate(self, changes: Sequence[Change], moves: Sequence[ReplicaMove]) -> None:
        """Changes and moves that are in the model now."""
        self._propagation.propagate(changes, moves)
        self._wake()

    @contextmanager
    def more_coming(self, *, urgent: bool = True) -> Iterator[None]:
        """While a large decision is committed: few large requests are cheaper for everybody than many small ones.

        A decision that is not ``urgent``, because nobody lacks a leader by it, is told at its end, or after
        ``UNHURRIED_S_MAX``; a broker that has something else to hear hears that as soon as ever.
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

    def metadata_changed(self, rows: Iterable[int]) -> None:
        """Rows of which every broker must hear UpdateMetadata, and no replica LeaderAndIsr."""
        self._propagation.metadata_changed(rows)
        self._wake()

    def leader_and_isr_to(self, broker_id: int, rows: Iterable[int], is_new: bool = False) -> None:
        """One broker hears LeaderAndIsr with the current leadership of rows."""
        self._propagation.leader_and_isr_to(broker_id, rows, is_new=is_new)
        self._wake()

    def snapshot(self, broker_ids: Iterable[int] | None = None, *, came_up: bool = False) -> None:
        """The brokers (None: all) hear everything that the model holds, in turns; changes go ahead of it.

        Brokers that ``came_up`` know nothing: they hear of all topics first, within ``INTRODUCED_ROWS_MAX``.
        """
        for broker_id in self._channels if broker_ids is None else broker_ids:
            if broker_id in self._channels:
                self._propagation.snapshot(broker_id, blank=came_up)
        self._wake()

    def _wake(self) -> None:
        for channel in self._channels.values():
            channel.wake()

    # -- waiting and looking

    async def quiesced(self, timeout_s: float) -> frozenset[int]:
        """Waits until every broker acknowledged everything; returns those that have not by then (empty = done)."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._behind():
                    self._shared.progress.clear()
                    await self._shared.progress.wait()
        except TimeoutError:
            pass
        return self._behind()

    def _behind(self) -> frozenset[int]:
        return frozenset(broker_id for broker_id, channel in self._channels.items() if not channel.quiet)

    async def leaders_acknowledged(self, rows: Iterable[int], timeout_s: float) -> frozenset[int]:
        """Waits until the leaders that rows have by now acknowledged it; returns those for which time was too short."""
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
        """Waits until brokers acknowledged StopReplica of rows; False where time was too short."""
        return await self._until(lambda: not self._propagation.unstopped(rows), timeout_s)

    async def metadata_acknowledged(self, rows: Iterable[int], timeout_s: float) -> bool:
        """Waits until every broker acknowledged the metadata that rows have by now; False where time was too short."""
        number = self._propagation.number_of(rows)
        return await self._until(lambda: self._propagation.acknowledged_to(number), timeout_s)

    async def metadata_shown(self, rows: Iterable[int], timeout_s: float) -> frozenset[int]:
        """Waits until one broker acknowledged the metadata that rows have by now; returns those that none has in time.

        Where there is no broker nothing is waited for.
        """
        numbers = {i: self._propagation.number_of((i,)) for i in rows}
        last = max(numbers.values(), default=0)
        if await self._until(lambda: self._propagation.shown(last), timeout_s):
            return frozenset()
        return frozenset(i for i, number in numbers.items() if not self._propagation.shown(number))

    def is_shown(self, rows: Iterable[int]) -> bool:
        """Whether a broker acknowledged the metadata that rows have by now, or there is none."""
        return self._propagation.shown(self._propagation.number_of(rows))

    async def _until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Waits until acknowledgements of brokers make something hold; False where time was too short."""
        try:
            async with asyncio.timeout(timeout_s):
                while not holds():
                    self._shared.progress.clear()
                    await self._shared.progress.wait()
        except TimeoutError:
            return False
        return True

    def not_ended(self, rows: Collection[int]) -> frozenset[int]:
        """Brokers that have still to be sent StopReplica for one of ``rows``, or to acknowledge what became of them."""
        return self._propagation.not_ended(rows)

    async def ended(self, rows: Collection[int]) -> None:
        """Waits until that is nobody; a broker that is gone is not waited for."""
        while self._propagation.not_ended(rows):
            self._shared.progress.clear()
            await self._shared.progress.wait()

    def unacknowledged_by(self, row: int) -> frozenset[int]:
        """Brokers that have not acknowledged the last change of a row."""
        return self._propagation.unacknowledged_by(row)

    def lag(self) -> dict[int, PropagationLag]:
        """How far each broker is behind."""
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
