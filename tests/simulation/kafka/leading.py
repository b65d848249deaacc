"""Runs a broker as a leader and as a caller: its followers, the ISR that it requests, its calls to the controller.

From IBP 2.7-IV2 on it requests ISR changes from the controller. Below it writes them to ZooKeeper and leaves a
notification.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from brokers.wire.errors import Error
from brokers.wire.versions import Ibp
from metadata_store.codecs.topic import decode_state
from metadata_store.errors import NotConnected, OutcomeUnknown, ZkError
from metadata_store.port import Create, Write
from state_machines.model.types import Leadership
from testing.simulated.broker import SimulatedBroker
from testing.simulated.calls import IsrChange
from testing.simulated.isr import IsrWrite
from testing.simulated.values import Key
from tests.kit.simulation.loop import Life, Process
from tests.simulation.kafka import producers
from tests.simulation.kafka.zookeeper import SimZooKeeper

if TYPE_CHECKING:
    from tests.simulation.kafka.world import SimulatedKafka

LISTENER: Final = "INTERNAL"
PORT: Final = 9092
CALL_S_MAX: Final = 5.0
ISR_POLL_S: Final = (0.3, 1.2)
LAG_S_MAX: Final = 2.5
"""Time without a fetch after which a follower leaves the ISR."""
NOTIFY_S_MIN: Final = 2.5
"""Shortest time between two notifications of ISRs that a leader wrote, as with a real broker."""


class Wire:
    """Faults of one broker.

    ``errors``: errors in the replies to its next requests, which change nothing. ``stale_epoch``: the last broker epoch
    that it knows as ended, although its new registration is still to come.
    """

    def __init__(self) -> None:
        self.refuses = False
        self.cut = False
        self.slow_s = 0.0
        self.requests_to_drop = 0
        self.replies_to_lose = 0
        self.errors: deque[Error] = deque()
        self.stale_epoch = -1


class LeadingBroker:
    """Leads and calls for one broker with all its lives. ``lagging``: it fetches too slowly to stay in any ISR."""

    def __init__(self, world: SimulatedKafka, broker_id: int, rack: str | None) -> None:
        self.world = world
        self.id = broker_id
        self.rack = rack
        self.ibp = Ibp.parse(world.plan.ibp)
        self.core = SimulatedBroker(broker_id, ibp=self.ibp)
        self.wire = Wire()
        self.process: Process | None = None
        self.zk: SimZooKeeper | None = None
        self.listening = False
        self.lagging = False
        self.port = PORT
        self._fetched_s: dict[tuple[Key, int], float] = {}
        self._correlation = 0
        self._writing: dict[str, IsrChange] = {}
        self._notified_s = 0.0

    def __str__(self) -> str:
        return f"broker {self.id}"

    @property
    def address(self) -> tuple[str, int]:
        """Returns the address of the listener."""
        return f"broker-{self.id}", self.port

    @property
    def running(self) -> bool:
        """Returns whether a process lives, frozen or not."""
        return self.process is not None

    @property
    def awake(self) -> bool:
        """Returns whether the process runs now."""
        return self.process is not None and self.process.life is Life.RUNNING

    @property
    def fetching(self) -> bool:
        """Returns whether the broker keeps up with the leaders that it follows."""
        return self.listening and not self.lagging and not self.wire.cut and self.awake

    # -- calls to the controller

    async def call(self, frame: bytes) -> bytes | None:
        """Sends a request to the controller that the broker knows; returns None without a reply in time."""
        endpoint = self.core.controller(LISTENER)
        if endpoint is None or self.process is None:
            return None
        try:
            async with asyncio.timeout(CALL_S_MAX):
                if self.wire.cut:
                    await self.world.loop.create_future()
                return await self.world.network.call(self.process, (endpoint.host, endpoint.port), frame)
        except OSError:
            return None

    async def producer_ids(self) -> None:
        """Requests a block of producer ids."""
        self._correlation += 1
        response = await self.call(producers.allocate(self._correlation, self.id, self.core.epoch))
        start = producers.block(response) if response is not None else None
        if start is not None:
            self.world.invariants.producer_ids(self.id, start)

    # -- ISR

    async def _keep_isr(self) -> None:
        """Finds the fetching followers now and then, and requests the resulting ISR."""
        low, high = ISR_POLL_S
        while True:
            await asyncio.sleep(low + (high - low) * self.world.chance.random())
            wanted = self.core.isr.wish(self._in_sync)
            self.world.invariants.requests_isr([c for key in wanted if (c := self.core.isr.pending(key)) is not None])
            if self.ibp.alter_partition:
                await self._alter_partitions()
            else:
                await self._write_isrs()

    def _in_sync(self, key: Key) -> set[int]:
        """Returns the brokers that fetch this partition from this leader, or fetched it lately."""
        replica = self.core.replicas[key]
        now_s, fetched_s, found = self.world.loop.now_s, self._fetched_s, set()
        for other in replica.replicas:
            node = self.world.brokers.get(other)
            if node is None or other == self.id:
                continue
            if node.fetching and self.fetching and node.core.fetches(key, self.id, replica.leader_epoch):
                fetched_s[key, other] = now_s
                found.add(other)
            elif other in replica.isr and now_s - fetched_s.setdefault((key, other), now_s) < LAG_S_MAX:
                found.add(other)
        return found

    async def _alter_partitions(self) -> None:
        work = self.core.isr
        self._correlation += 1
        frame = work.in_flight.frame if work.in_flight is not None else work.alter_partition(self._correlation)
        if frame is None:
            return
        assert work.in_flight is not None
        requested = list(work.in_flight.changes)
        response = await self.call(frame)
        if response is not None and work is self.core.isr:
            if not work.take_response(response):
                work.give_up(self._lives)
            self.world.invariants.granted(self, requested)

    async def _write_isrs(self) -> None:
        work, zk = self.core.isr, self.zk
        if zk is None:
            return
        for write in work.writes():
            work.written(write, await self._written(zk, write) if self._lives(write.change) else None)
        if self.world.loop.now_s < self._notified_s + NOTIFY_S_MIN:
            return
        self._notified_s = self.world.loop.now_s
        notification = work.notification()
        while notification is not None and work is self.core.isr:
            try:
                await zk.create(notification.path, notification.data, sequential=True)
                return
            except (NotConnected, OutcomeUnknown):
                await asyncio.sleep(0.3)
            except ZkError:  # another client deleted the parent
                return

    def _lives(self, change: IsrChange) -> bool:
        """Returns False where a topic was removed by hand while it was led.

        Only its leaders write into its successor then; no controller can keep them from it. Below IBP 2.8 they request
        the ISR of the successor by name. It has a lower leader epoch: NOT_CONTROLLER, for ever.
        """
        history = self.world.invariants.history
        if change.key not in history.former:
            return True
        held = history.at(change.key, change.partition_epoch)
        mine = held is not None and (held.leader, held.leader_epoch) == (self.id, change.leader_epoch)
        return mine and set(change.isr) <= set(history.assignment(change.key))

    def of_former_lives(self, ops: Sequence[Write]) -> bool:
        """Returns whether the topic was removed by hand, and created anew, while a leader's write was under way."""
        change = self._writing.get(ops[0].path)
        return change is not None and not self._lives(change)

    async def _written(self, zk: SimZooKeeper, write: IsrWrite) -> Leadership | None:
        """Returns the znode's content after a write, which the leader sends again until it has a reply."""
        op = write.op
        self._writing[op.path] = write.change
        while zk is self.zk and self._lives(write.change):
            try:
                stat = await zk.set(op.path, op.data, op.version)
                return _leadership(op.data, stat.version)
            except (NotConnected, OutcomeUnknown):
                await asyncio.sleep(0.3)
            except ZkError:
                break
        while zk is self.zk:
            try:
                await zk.sync("/")
                node = await zk.get(op.path)
            except (NotConnected, OutcomeUnknown):
                await asyncio.sleep(0.3)
                continue
            return _leadership(node.data, node.stat.version) if node is not None else None
        return None

    async def create(self, op: Create) -> None:
        """Creates a znode, and retries where the connection is lost."""
        while self.zk is not None:
            try:
                await self.zk.create(op.path, op.data, sequential=op.sequential)
                return
            except (NotConnected, OutcomeUnknown):
                await asyncio.sleep(0.3)
            except ZkError:
                return


def _leadership(data: bytes | None, version: int) -> Leadership | None:
    found = decode_state(data, version)
    return found if isinstance(found, Leadership) else None
