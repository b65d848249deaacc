"""Runs brokers: the simulated broker's core with a session, with stops and faults of every kind.

:mod:`tests.simulation.kafka.leading` has a broker's work as a leader, :mod:`tests.simulation.kafka.interim` its work as
the elected controller.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from brokers.wire.errors import Error
from metadata_store import paths
from metadata_store.codecs.cluster import encode_broker
from metadata_store.errors import ConnectFailed, NotConnected, OutcomeUnknown, ZkError
from metadata_store.port import ANY_VERSION, ConnectionState, WatchEvent
from state_machines.model.types import Broker, Endpoint
from testing.simulated.broker import Received
from testing.simulated.calls import controlled_shutdown, shutdown_response
from testing.simulated.replies import bare_response, encode_response
from testing.simulated.values import Request, StopReplica
from tests.kit.simulation.loop import Life, Process
from tests.simulation.kafka import faults
from tests.simulation.kafka.interim import follow_controller
from tests.simulation.kafka.leading import LISTENER, LeadingBroker
from tests.simulation.kafka.network import SimConnection
from tests.simulation.kafka.zookeeper import SimZooKeeper

if TYPE_CHECKING:
    from tests.simulation.kafka.world import SimulatedKafka

SESSION_MS: Final = 6_000
LISTENS_S_MAX: Final = 0.4
SHUTDOWN_TRIES: Final = 3
SHUTDOWN_PAUSE_S: Final = 1.0
_COUNTED: Final = {
    int(Error.STALE_BROKER_EPOCH): faults.BROKER_STALE_BROKER,
    int(Error.STALE_CONTROLLER_EPOCH): faults.BROKER_STALE_CONTROLLER,
}

Waiting = tuple[SimConnection, Request, int, Callable[[bytes], None]]


class BrokerNode(LeadingBroker):
    """Runs the lives of one broker: registration, requests one after the other, and its end.

    ``fresh``: this process has not registered yet. ``retired``: it is not started again. ``foreign``: it may report a
    higher controller epoch, although no controller was elected.
    """

    def __init__(self, world: SimulatedKafka, broker_id: int, rack: str | None) -> None:
        super().__init__(world, broker_id, rack)
        self.core.recorded = self._responded
        self.connections: dict[SimConnection, None] = {}
        self.stopping = False
        self.retired = False
        self.fresh = True
        self.foreign = False
        self.lives = 0
        self._queue: deque[Waiting] = deque()
        self._changed = asyncio.Event()

    # -- life

    def start(self) -> None:
        """Starts a new process, unless one lives."""
        if self.process is None and not self.retired:
            self.lives += 1
            self.fresh = True
            self.process = Process(self.world.loop, f"broker-{self.id}.{self.lives}")
            self.process.start(self._main(self.process), "main")

    async def _main(self, process: Process) -> None:
        self.zk = SimZooKeeper(self.world.ensemble, process, str(self), session_timeout_ms=SESSION_MS)
        self.zk.void = self.of_former_lives
        self.zk.on_watch, self.zk.on_state = self._watched, self._state_changed
        await self._register(self.zk)
        await asyncio.sleep(LISTENS_S_MAX * self.world.chance.random())
        self.world.network.brokers[self.address] = self
        self.listening = True
        process.start(self._keep_isr(), "isr")
        while True:
            self._changed.clear()
            if self.zk.state is ConnectionState.LOST:
                await self._register(self.zk)
            with suppress(NotConnected, OutcomeUnknown, ConnectFailed):
                await follow_controller(self)
            await self._changed.wait()

    async def _register(self, zk: SimZooKeeper) -> None:
        """Retries until the broker is registered: a former session of its own may have to expire first."""
        while True:
            try:
                await zk.connect(10.0)
                data = encode_broker(self._registration(), timestamp_ms=0)
                created = await zk.create(paths.broker(self.id), data, ephemeral=True)
            except (NotConnected, OutcomeUnknown, ConnectFailed):
                await asyncio.sleep(0.2)
            except ZkError:
                if await self._owned(zk):
                    return
                await asyncio.sleep(0.3)
            else:
                self._registered(created.stat.czxid)
                return

    async def _owned(self, zk: SimZooKeeper) -> bool:
        """Returns whether the registration exists already: it was created, and the reply was lost."""
        with suppress(NotConnected):
            stat = await zk.exists(paths.broker(self.id))
            if stat is not None and stat.ephemeral_owner == zk.session_id:
                self._registered(stat.czxid)
                return True
        return False

    def _registered(self, epoch: int) -> None:
        if self.fresh:
            self.core.restart(epoch)
        else:
            self.core.registered(epoch)
        self.fresh = False
        self.world.trace(f"{self} registered with epoch {epoch}")

    def _registration(self) -> Broker:
        host, port = self.address
        return Broker(self.id, 0, (Endpoint(LISTENER, host, port),), self.rack)

    def crash(self) -> None:
        """Kills the broker: kill -9, or the power."""
        if self.process is not None:
            self._gone()

    def _gone(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process = None
        self.listening = self.stopping = self.foreign = False
        self.world.network.brokers.pop(self.address, None)
        for connection in list(self.connections):
            connection.reset("the broker is gone")
        self._queue.clear()
        self.wire.errors.clear()
        if self.zk is not None:
            self.zk.abandon()
            self.zk = None

    def freeze(self) -> None:
        """Sends SIGSTOP."""
        if self.process is not None:
            self.process.halt(Life.FROZEN)
            if self.zk is not None and self.zk.session is not None:
                self.world.ensemble.silent(self.zk.session)

    def resume(self, life: int) -> None:
        """Sends SIGCONT, if it is still the same process."""
        if self.process is not None and self.lives == life:
            self.process.resume()
            if self.zk is not None:
                self.zk.awoken()

    def expire(self) -> None:
        """Expires the session of the running broker, which registers again with a new epoch and its memory."""
        if self.zk is not None and self.zk.session_id in self.world.ensemble.sessions:
            self.world.ensemble.expire(self.world.ensemble.sessions[self.zk.session_id], forced=True)

    def move(self) -> None:
        """Moves the listener to another port, as a change of the dynamic configuration does."""
        if self.process is None or not self.listening:
            return
        self.world.network.brokers.pop(self.address, None)
        self.port += 1
        self.world.network.brokers[self.address] = self
        for connection in list(self.connections):
            connection.reset("the listener is closed")
        self.process.start(self._register_again(), "move")

    async def _register_again(self) -> None:
        zk, epoch = self.zk, self.core.epoch
        while zk is not None and epoch == self.core.epoch:
            try:
                await zk.set(paths.broker(self.id), encode_broker(self._registration(), timestamp_ms=0), ANY_VERSION)
            except (NotConnected, OutcomeUnknown):
                await asyncio.sleep(0.2)
            except ZkError:
                return
            else:
                return

    def stop(self, away_s: float) -> None:
        """Stops the broker cleanly, leadership moved first; starts it again ``away_s`` after its end."""
        if self.process is not None and not self.stopping:
            self.stopping = True
            self.process.start(self._stop(self.process, away_s), "stop")

    async def _stop(self, process: Process, away_s: float) -> None:
        for _ in range(SHUTDOWN_TRIES):
            self._correlation += 1
            response = await self.call(controlled_shutdown(self._correlation, self.id, self.core.epoch))
            if response is not None:
                found = shutdown_response(response)
                self.world.trace(f"{self} may stop: {found.error}, {len(found.remaining)} left")
                if not found.error and not found.remaining:
                    break
            await asyncio.sleep(SHUTDOWN_PAUSE_S)
        if self.zk is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(3.0):
                    await self.zk.close()
        if self.process is process:
            self._gone()
            self.world.network.later(away_s, self.start)

    # -- the session

    def _watched(self, event: WatchEvent) -> None:
        self._changed.set()

    def _state_changed(self, state: ConnectionState) -> None:
        self._changed.set()

    # -- requests of controllers

    def arrived(self, connection: SimConnection, request: Request, size: int, reply: Callable[[bytes], None]) -> None:
        """Queues a request: the broker's one request handler takes them in order."""
        if self.process is None:
            return
        self._queue.append((connection, request, size, reply))
        if len(self._queue) == 1:
            self._take_soon(self.process)

    def _take_soon(self, process: Process) -> None:
        process.call_at(self.world.loop.now_s + self.wire.slow_s, self._take)

    def _take(self) -> None:
        connection, request, size, reply = self._queue.popleft()
        if self._queue and self.process is not None:
            self._take_soon(self.process)
        if self.wire.requests_to_drop:
            self.wire.requests_to_drop -= 1
            self.world.happened(faults.BROKER_REQUEST_LOST)
            connection.reset("dropped before it was read")
            return
        response = self._response(request, size)
        if self.wire.replies_to_lose:
            self.wire.replies_to_lose -= 1
            self.world.happened(faults.BROKER_REPLY_LOST)
            connection.reset("lost before its response")
        else:
            reply(response)

    def _response(self, request: Request, size: int) -> bytes:
        error = self._injected(request)
        if not error:
            return self.core.take(request, size)
        self._responded(Received(self.id, request, size, error, {}))
        if isinstance(request, StopReplica):
            return bare_response(request.head, error)
        return encode_response(request, error, {(e.topic, e.partition): int(error) for e in request.entries})

    def _responded(self, received: Received) -> None:
        """Traces and counts a request that the broker responded to."""
        if received.error:
            self.world.trace(f"{self} answers {received.api.name} with {received.error}")
            if received.error in _COUNTED:
                self.world.happened(_COUNTED[received.error])
        if Error.KAFKA_STORAGE_ERROR in received.errors.values():
            self.world.happened(faults.BROKER_STORAGE)
        self.world.invariants.stopped(self, received)
        self.world.event()

    def _injected(self, request: Request) -> Error:
        """Returns the error that a script requested."""
        if self.wire.stale_epoch >= request.head.broker_epoch:
            return Error.STALE_BROKER_EPOCH
        return self.wire.errors.popleft() if self.wire.errors else Error.NONE
