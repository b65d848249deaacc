"""The two controllers as the harness sees them: start, give the role, be ready, what their processes cost."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks import role
from benchmarks.follow import LogFollower, json_stamp, log4j_stamp
from benchmarks.servers import PEER_ID, PeerProcess
from cli.demo.process import RegentProcess
from configs.settings import Settings
from metadata_store import paths
from metadata_store.port import ANY_VERSION, ZooKeeper
from testing.embedded.process import ChildProcess

OURS: Final = "regent"
PEER: Final = "kafka"
DAEMON_ID: Final = 1_000_001

Phases = dict[str, float]
"""Seconds of a failover by phase, as its log tells."""


@dataclass(frozen=True)
class Lag:
    """The longest lag of the daemon's event loop since it started, and how many were at most so long."""

    longest_s: float = 0.0
    counts: Mapping[float, float] = field(default_factory=dict)

    def since(self, before: Lag) -> float:
        """The longest lag between two looks: exact where it was the longest so far, else the bound of its bucket."""
        if self.longest_s > before.longest_s:
            return self.longest_s
        bounds = sorted(self.counts)
        new = [self.counts[bound] - before.counts.get(bound, 0.0) for bound in bounds]
        reached = next((bound for bound, count in zip(bounds, new, strict=True) if count == new[-1]), 0.0)
        return min(reached, self.longest_s)


class Contestant(ABC):
    """One controller process. ``give`` is the write that gives it the role; ``id`` is its controller id.

    ``writes``: how often it writes a partition's state where a change has two steps: once for both, or for each.
    """

    name: str
    id: int
    ready_pattern: str
    writes: int

    def __init__(self, process: ChildProcess, give: Callable[[ZooKeeper], Awaitable[None]]) -> None:
        self.process = process
        self.give = give

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    @abstractmethod
    def port(self) -> int:
        """Where brokers call it."""

    @abstractmethod
    async def boot(self, zk: ZooKeeper) -> None:
        """Starts it; afterwards it waits for the role."""

    @abstractmethod
    def follow(self) -> LogFollower:
        """Its log from now on."""

    @abstractmethod
    async def idle(self) -> bool:
        """Whether it knows that it is not the controller."""

    async def lag(self) -> Lag:
        """How late its event loop was, where it has one."""
        return Lag()

    @abstractmethod
    def phases(self, log: LogFollower, began_s: float) -> Phases:
        """Where the time went, as far as its log tells; ``began_s`` is a time of day."""


class Regent(Contestant):
    """``regent run`` as a standby, with its default settings but for the automatic balance, which is off as Kafka's."""

    name = OURS
    id = DAEMON_ID
    ready_pattern = "took office at epoch"
    writes = 1

    def __init__(self, folder: Path, connect: str, *, journal: bool = True) -> None:
        defaults = Settings.model_validate(
            {"zookeeper": {"connect": connect}, "listener": {"advertised_host": "127.0.0.1"}}
        )
        settings: dict[str, object] = {
            "zookeeper.session_timeout_ms": defaults.zookeeper.session_timeout_ms,
            "controller.loop_stall_ms_max": defaults.controller.loop_stall_ms_max,
            "controller.auto_leader_rebalance_enable": False,
            "log.format": "json",
            "journal.enabled": journal,
        }
        self.daemon = RegentProcess(folder, connect, controller_id=DAEMON_ID, settings=settings)
        super().__init__(self.daemon, role.give_to_regent)

    @property
    def port(self) -> int:
        """The controller listener."""
        return self.daemon.port

    async def boot(self, zk: ZooKeeper) -> None:
        """See :class:`Contestant`."""
        await self.daemon.boot("standby")

    def follow(self) -> LogFollower:
        """See :class:`Contestant`."""
        return LogFollower(self.daemon.log, json_stamp)

    async def idle(self) -> bool:
        """See :class:`Contestant`."""
        return await self.daemon.is_in("standby")

    def phases(self, log: LogFollower, began_s: float) -> Phases:
        """The claim and the reading; deciding is what is left until ready."""
        claimed, ready = log.find("claimed epoch"), log.find(self.ready_pattern)
        if claimed is None or ready is None:
            return {}
        line = next(line for line in log.lines if re.search(self.ready_pattern, line))
        found = re.search(r"read in ([\d.]+) s", json.loads(line)["event"])
        read_s = float(found[1]) if found else 0.0
        return {"claim": claimed - began_s, "read": read_s, "elections": ready - claimed - read_s}

    async def lag(self) -> Lag:
        """How late the event loop was, so far."""
        [longest] = (await self.daemon.metric("regent_loop_lag_longest_seconds")).values()
        buckets = await self.daemon.metric("regent_loop_lag_seconds_bucket")
        counts = {float(bound): count for text, count in buckets.items() for bound in re.findall(r'le="(.+)"', text)}
        return Lag(longest, counts)


class Kafka(Contestant):
    """Kafka's own controller in a process that hosts nothing and is not registered as a broker."""

    name = PEER
    id = PEER_ID
    ready_pattern = "Ready to serve as the new controller"
    writes = 2

    def __init__(self, folder: Path, connect: str, heap_mb: int) -> None:
        self.server = PeerProcess(folder, connect, heap_mb)
        super().__init__(self.server, role.give_to_kafka)

    @property
    def port(self) -> int:
        """The inter-broker listener."""
        return self.server.port

    async def boot(self, zk: ZooKeeper) -> None:
        """Its registration is removed, so that it tells the same brokers as the other one, and not itself."""
        await self.server.boot()
        await zk.delete(paths.broker(PEER_ID), ANY_VERSION)

    def follow(self) -> LogFollower:
        """See :class:`Contestant`."""
        return LogFollower(self.server.controller_log, log4j_stamp)

    async def idle(self) -> bool:
        """Elections and resignations take turns in its log."""
        text = self.server.controller_log.read_text(errors="replace")
        elected, resigned = text.rfind("successfully elected as the controller"), text.rfind("Resigned")
        return resigned >= elected

    def phases(self, log: LogFollower, began_s: float) -> Phases:
        """Election and reading, replica machine, partition machine."""
        times = [log.find(p) for p in ("Initializing replica state", "Initializing partition state", "Ready to serve")]
        if None in times:
            return {}
        replicas, partitions, ready = (t for t in times if t is not None)
        return {
            "elected and read": replicas - began_s,
            "replica machine": partitions - replicas,
            "partition machine": ready - partitions,
        }
