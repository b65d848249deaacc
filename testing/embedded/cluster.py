"""Runs ZooKeeper and some brokers, all real, under one temporary folder, for the demo and cluster tests."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from testing.embedded.jars import jars
from testing.embedded.kafka import EmbeddedBroker
from testing.embedded.process import ChildProcess, ProcessFailed, poll
from testing.embedded.zookeeper import EmbeddedZooKeeper, ensemble

BOOTS_MAX: Final = 4
"""Brokers that start at the same time: more of them would share a few cores for longer than one may take."""
CLUSTER_END_S_MAX: Final = 5.0
SESSION_END_S_MAX: Final = 30.0
"""How long a dead broker's session may linger: its time-out, a tick, and a ZooKeeper that was just restarted."""

log = logging.getLogger("regent.brokers")


class EmbeddedCluster:
    """``async with EmbeddedCluster() as cluster``: ZooKeeper and brokers 1..n serve inside the block.

    ``racks`` gives each broker's rack in order; ``chroot`` is the cluster's path in ZooKeeper; ``broker_options`` goes
    to every :class:`EmbeddedBroker`, ``zookeeper_options`` to :class:`EmbeddedZooKeeper`. ``zookeepers`` is the size of
    the ensemble; ``zookeeper`` is its first server. With ``start_brokers=False`` only ZooKeeper is up inside the block:
    boot brokers singly.

    Leaving the block kills every process. The folder is removed, unless the block failed or ``keep`` is set: then the
    path of the logs is added to the exception.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        racks: Sequence[str | None] | None = None,
        chroot: str = "",
        zookeepers: int = 1,
        start_brokers: bool = True,
        keep: bool = False,
        broker_options: Mapping[str, Any] | None = None,
        zookeeper_options: Mapping[str, Any] | None = None,
    ) -> None:
        if racks is not None and len(racks) != brokers:
            raise ValueError(f"racks={racks!r} names {len(racks)} racks for {brokers} brokers: give one for each")
        self.chroot = chroot
        self._racks = racks
        self._count = brokers
        self._start_brokers = start_brokers
        self._keep = keep
        self._broker_options = {"replication": min(3, brokers), **(broker_options or {})}
        self._zookeeper_options = dict(zookeeper_options or {})
        self._zookeeper_count = zookeepers
        self.folder: Path
        self.zookeepers: list[EmbeddedZooKeeper] = []
        self.brokers: dict[int, EmbeddedBroker] = {}

    @property
    def connect(self) -> str:
        """Returns ZooKeeper's connect string for this cluster, chroot included."""
        return ",".join(server.connect for server in self.zookeepers) + self.chroot

    @property
    def zookeeper(self) -> EmbeddedZooKeeper:
        """Returns the only server, or the first one of the ensemble."""
        return self.zookeepers[0]

    @property
    def bootstrap(self) -> list[str]:
        """Returns the bootstrap addresses of all brokers, on the CLIENT listener."""
        return [broker.address for broker in self.brokers.values()]

    def add_broker(self, broker_id: int, **options: Any) -> EmbeddedBroker:
        """Adds a broker without starting it; ``options`` override the cluster's."""
        chosen = {**self._broker_options, **options}
        broker = EmbeddedBroker(broker_id, self.folder / f"broker-{broker_id}", self.connect, **chosen)
        self.brokers[broker_id] = broker
        return broker

    async def registered(self) -> set[int]:
        """Returns ids of brokers with ephemeral znodes in ZooKeeper now; those of paused and just killed ones too."""
        responses = await asyncio.gather(*(server.query("dump") for server in self.zookeepers))
        listed = next((text for text in responses if "ephemeral" in text.lower()), "")
        return set(map(int, re.findall(rf"^\s*{re.escape(self.chroot)}/brokers/ids/(\d+)$", listed, re.MULTILINE)))

    async def revive(self, broker_id: int) -> float:
        """Starts a killed broker once its session is gone; returns the seconds of the start.

        A broker that comes back sooner finds its own old registration and ends.
        """
        if not await poll(lambda: self._unregistered(broker_id), SESSION_END_S_MAX):
            raise ProcessFailed(f"broker {broker_id} is still registered after {SESSION_END_S_MAX:g} s: is it running?")
        return await self.brokers[broker_id].boot()

    async def _unregistered(self, broker_id: int) -> bool:
        return broker_id not in await self.registered()

    def _servers(self, folder: Path) -> list[EmbeddedZooKeeper]:
        if self._zookeeper_count == 1:
            return [EmbeddedZooKeeper(folder, **self._zookeeper_options)]
        return ensemble(folder, self._zookeeper_count, **self._zookeeper_options)

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(jars)
        self.folder = Path(tempfile.mkdtemp(prefix="regent-"))
        try:
            self.zookeepers = self._servers(self.folder / "zookeeper")
            for index in range(self._count):
                self.add_broker(index + 1, **({"rack": self._racks[index]} if self._racks else {}))
            await asyncio.gather(*(server.boot() for server in self.zookeepers))
            if self._start_brokers:
                places = asyncio.Semaphore(BOOTS_MAX)
                await asyncio.gather(*(self._boot(broker, places) for broker in self.brokers.values()))
        except BaseException as error:
            await self._end(error)
            raise
        return self

    async def _boot(self, broker: EmbeddedBroker, places: asyncio.Semaphore) -> None:
        async with places:
            await broker.boot()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(error)

    async def _end(self, error: BaseException | None) -> None:
        """Kills everything; keeps the folder where its logs may explain a failure."""
        await asyncio.shield(self._kill_all())
        if error is not None and not isinstance(error, asyncio.CancelledError | KeyboardInterrupt | GeneratorExit):
            error.add_note(f"the logs of ZooKeeper and the brokers are kept in {self.folder}")
        elif self._keep:
            log.info("The files of the embedded cluster are kept in %s.", self.folder)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    async def _kill_all(self) -> None:
        processes: list[ChildProcess] = [*self.brokers.values(), *self.zookeepers]
        await asyncio.wait_for(asyncio.gather(*(process.kill() for process in processes)), CLUSTER_END_S_MAX)
