"""Daemons of the simulation: each life is a process with the real domain on the shared disk."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, cast

from brokers.listener.inbound import InboundConnection
from brokers.regions.listener import RegionListener
from brokers.regions.secret import Secrets
from controller.regions.claim import ClaimLooks, Opening
from controller.regions.clock import Uptime
from controller.regions.dispatcher import DispatchLimits
from controller.regions.domain import RegionsDomain
from controller.regions.manager import SUCCESSES
from controller.regions.sqlite_store import CLAIM_S
from controller.regions.term import RegionsTerm
from controller.regions.transport.nodes import Nodes
from metadata_store.catalog.rows import Catalog
from metadata_store.records.claims import Holder
from metadata_store.records.codec import sealed
from metadata_store.records.port import RecordStore, Stored, StoreFailed
from regent_agent import codec, protocol
from state_machines.procedures.record import Record
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.simulation.loop import Life, Process
from tests.simulation.regions import znodes
from tests.simulation.regions.journals import SimJournal
from tests.simulation.regions.network import CLIENTS_SECRET, SERVERS_SECRET

if TYPE_CHECKING:
    from controller.journal.journal import Journal
    from tests.simulation.regions.world import SimulatedRegions

RESTART_S: Final = 0.7
"""Time from the end of a process at a write to the begin of the next one."""


class SimListener(RegionListener):
    """A listener without a socket."""

    def __init__(self, node: DaemonNode) -> None:
        super().__init__("", 0, secrets=Secrets((SERVERS_SECRET,), (CLIENTS_SECRET,)), daemon=node.name)
        self._node = node

    async def start(self) -> None:
        """Does nothing."""

    async def respond(self, frame: bytes, connection: InboundConnection | None = None) -> bytes:
        """Responds, and has the judge look at what is accepted."""
        request = codec.decode_request(frame)
        if isinstance(request, protocol.Report) and (zookeeper := self._node.world.zookeeper) is not None:
            zookeeper.failed.update(one.pid for one in request.results if one.outcome not in SUCCESSES)
        response = await super().respond(frame, connection)
        if isinstance(request, protocol.Report):
            accepted = codec.decode_response(response[codec.LENGTH.size :])
            if isinstance(accepted, protocol.Accepted):
                self._node.world.judge.accepted(request, accepted)
        return response

    async def stop(self) -> None:
        """Stops serving."""
        self.resign()

    def resign(self) -> None:
        """Stops serving: peers look for another daemon."""
        super().resign()
        self._node.reset_connections()

    @property
    def port(self) -> int:
        """Returns no port."""
        return 0


NARROW_EVERY: Final = 2
NARROW_BYTES: Final = 1_600
"""The end of a move by an operator stores it with the balance and the assign that it belongs to: 1,430 bytes."""


class SimStore(MemoryRegionStore):
    """A store that takes time, and at whose writes its daemon may die. ``busy``: writes whose end is not known yet.

    In some seeds a write is narrow: children of a batch are born one part after the other.
    """

    def __init__(self, disk: RegionDisk, node: DaemonNode, above: int) -> None:
        super().__init__(disk, above)
        self.bytes_max = 0 if node.world.plan.seed % NARROW_EVERY else NARROW_BYTES
        self._node = node
        self._turn = asyncio.Lock()
        self.busy = 0

    def weigh(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> int:
        """Weighs records as they are stored; rows weigh nothing here."""
        return sum(len(sealed(one)) for one in puts) if self.bytes_max else 0

    async def load(self) -> Stored:
        """Reads all records."""
        await self._node.pause()
        return await super().load()

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        """Writes; the daemon may die before and after."""
        puts, rows = tuple(puts), tuple(rows)
        assert self.weigh(puts) <= self.bytes_max, "a step makes more than the store takes"
        self.busy += 1
        async with self._turn:
            await self._node.pause()
            await self._node.may_die(after=False)
            await super().write(puts, deletes, rows)
            self._node.world.judge.written(puts, rows)
            await self._node.may_die(after=True)
            await self._node.pause()
        self.busy -= 1

    async def reserve(self, count: int) -> int:
        """Reserves pids; the daemon may die before and after."""
        await self._node.may_die(after=False)
        first = await super().reserve(count)
        await self._node.may_die(after=True)
        return first


class SimOpened:
    """An open store with its claim."""

    def __init__(self, node: DaemonNode, store: SimStore) -> None:
        self.store: RecordStore = store
        self.catalog: Catalog = store
        self.epoch = store.epoch
        self.nodes: Nodes | None = None
        self._node = node
        self._process = node.process
        self._looks = ClaimLooks(self._prove, node.world.options.lease_ms, node.world.loop.time)

    async def _prove(self) -> None:
        """Looks at the lock and at the epoch, as the product does with a file."""
        world = self._node.world
        await self._node.pause()
        if world.lockless != self.epoch and not self._claims():
            raise StoreFailed("the claim is lost")
        if world.disk.opened != self.epoch:
            raise StoreFailed("another daemon opened the store")
        await self._node.pause()

    def _claims(self) -> bool:
        world = self._node.world
        return world.claimant is self._process and world.claimed == self.epoch

    def leads(self) -> bool:
        """Checks whether the claim was proven not long ago."""
        return self._looks.hold()

    def look(self) -> asyncio.Event:
        """Returns what is set once a look that begins from now on is over."""
        return self._looks.ask()

    def suspended(self) -> str:
        """Returns nothing: a lock has no lease."""
        return ""

    def complaint(self) -> str:
        return ""

    async def daemons(self) -> Sequence[Holder]:
        return ()

    async def lost(self) -> None:
        """Looks at the claim again and again; raises ``StoreFailed``."""
        await self._looks.keep()

    async def close(self) -> None:
        """Gives the claim up."""
        self._looks.end()
        if self._claims():
            self._node.world.claimant = None


class DaemonNode:
    """A daemon that is started, frozen and killed. ``deadly``: writes until it dies, and whether after the write."""

    def __init__(self, world: SimulatedRegions, name: str) -> None:
        self.world = world
        self.name = name
        self.process: Process | None = None
        self.domain: RegionsDomain | None = None
        self.store: SimStore | None = None
        self.deadly: tuple[int, bool] | None = None
        self.listener = SimListener(self)
        self._chance = random.Random(f"{world.plan.seed} {name}")
        self._lives = 0

    @property
    def term(self) -> RegionsTerm | None:
        """Returns the term that serves."""
        alive = self.process is not None and self.process.alive
        return self.domain.term if alive and self.domain is not None else None

    def start(self) -> None:
        """Starts a process, unless one lives."""
        if self.process is not None and self.process.alive:
            return
        self._lives += 1
        self.process = Process(self.world.loop, self.name)
        self.listener = SimListener(self)
        self.store = None
        self.deadly = None
        self.process.start(self._run())

    async def _run(self) -> None:
        self.domain = RegionsDomain(
            self._open,
            self.listener,
            self.world.options,
            wall_ms=self.world.wall_ms,
            up=lambda: Uptime("the machine", int(self.world.loop.now_s * 1000)),
            limits=DispatchLimits(delay_ms=self.world.plan.delay_ms, batch_max=4, in_flight_max=8),
            placement=self.world.plan.placement,
            journal=cast("Journal", SimJournal(self.world)),
            daemon=int(self.name[1:]),
        )
        await self.domain.run()

    async def _open(self, opening: Opening) -> SimOpened:
        world = self.world
        while world.is_locked():  # noqa: ASYNC110  # as the product does
            await asyncio.sleep(CLAIM_S)
        assert self.process is not None
        world.claimant = self.process
        self.store = SimStore(world.disk, self, opening.above.epoch)
        world.claimed = self.store.epoch
        world.counts["terms"] += 1
        opened = SimOpened(self, self.store)
        if world.zookeeper is not None:
            opened.nodes = await znodes.nodes_of(self, opened.epoch)
        return opened

    async def pause(self) -> None:
        """Lets a write take its time."""
        await asyncio.sleep(self._chance.random() * self.world.plan.write_ms / 1000)

    async def may_die(self, *, after: bool) -> None:
        """Counts a side of a write; never returns where the daemon dies there."""
        if self.deadly is None or self.deadly[1] != after:
            return
        left, _ = self.deadly
        self.deadly = left - 1, after
        if left <= 1:
            self.world.counts["died at a write"] += 1
            self.kill()
            self.start_later(RESTART_S)
            await asyncio.get_running_loop().create_future()

    def start_later(self, delay_s: float) -> None:
        """Starts a process after a while."""
        loop = self.world.loop
        loop.call_at(loop.now_s + delay_s, self.start, context=loop.root)

    def kill(self) -> None:
        """Kills the process with kill -9."""
        if self.process is not None and self.process.alive:
            self.process.kill()
            self.reset_connections()

    def freeze(self) -> None:
        """Freezes the process with SIGSTOP."""
        if self.process is not None:
            self.process.halt(Life.FROZEN)

    def thaw(self) -> None:
        """Thaws the process."""
        if self.process is not None:
            self.process.resume()

    def reset_connections(self) -> None:
        """Ends all connections to this daemon."""
        self.world.network.ended(lambda one: one.daemon is self)
