"""Drives the two controllers for the harness: start, role, readiness and costs of the processes."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks import role
from benchmarks.servers import PEER_ID, PeerProcess
from cli.demo.process import RegentProcess
from configs.settings import Settings
from metadata_store import paths
from metadata_store.port import ANY_VERSION, ZooKeeper
from testing.embedded.process import ChildProcess

Stamp = Callable[[str], float]


class LogFollower:
    """Reads the lines of ``path`` from now on. ``stamp`` returns a line's time, in seconds since the epoch."""

    def __init__(self, path: Path, stamp: Stamp) -> None:
        self._path = path
        self._stamp = stamp
        self._at = path.stat().st_size if path.exists() else 0
        self._rest = ""
        self.lines: list[str] = []

    def find(self, pattern: str) -> float | None:
        """Returns the time of the first matching line since the start, or None."""
        self._read()
        line = next((line for line in self.lines if re.search(pattern, line)), None)
        return None if line is None else self._stamp(line)

    def _read(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as log:
            log.seek(self._at)
            new = log.read()
        self._at += len(new)
        *whole, self._rest = (self._rest + new.decode(errors="replace")).split("\n")
        self.lines += whole


def log4j_stamp(line: str) -> float:
    """Returns the time of a line that begins with log4j's ISO8601 time, in UTC."""
    return datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC).timestamp()


def json_stamp(line: str) -> float:
    """Returns the time of a line of the daemon's JSON log."""
    return datetime.fromisoformat(json.loads(line)["timestamp"]).timestamp()


OURS: Final = "regent"
PEER: Final = "kafka"
DAEMON_ID: Final = 1_000_001

Phases = dict[str, float]
"""Seconds of a failover by phase, read from a log."""


@dataclass(frozen=True)
class Lag:
    """The longest lag of the daemon's event loop since its start, and the number of lags up to each bound."""

    longest_s: float = 0.0
    counts: Mapping[float, float] = field(default_factory=dict)

    def since(self, before: Lag) -> float:
        """Returns the longest lag between two reads: exact if it is the longest so far, else its bucket's bound."""
        if self.longest_s > before.longest_s:
            return self.longest_s
        bounds = sorted(self.counts)
        new = [self.counts[bound] - before.counts.get(bound, 0.0) for bound in bounds]
        reached = next((bound for bound, count in zip(bounds, new, strict=True) if count == new[-1]), 0.0)
        return min(reached, self.longest_s)


class Contestant(ABC):
    """One controller process. ``give`` is the write that gives it the role; ``id`` is its controller id.

    ``writes``: writes of a partition's state for a change of two steps: one for both, or one for each.
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
        """Returns the process id."""
        return self.process.pid

    @property
    @abstractmethod
    def port(self) -> int:
        """Returns the port that brokers use."""

    @abstractmethod
    async def boot(self, zk: ZooKeeper) -> None:
        """Starts the process, which then waits for the role."""

    @abstractmethod
    def follow(self) -> LogFollower:
        """Follows its log from now on."""

    @abstractmethod
    async def idle(self) -> bool:
        """Returns whether it knows that it is not the controller."""

    async def lag(self) -> Lag:
        """Returns the lag of its event loop, where it has one."""
        return Lag()

    @abstractmethod
    def phases(self, log: LogFollower, began_s: float) -> Phases:
        """Returns the seconds of the phases in its log; ``began_s`` is a time of day."""


class Regent(Contestant):
    """``regent run`` as a standby, with default settings except the automatic balance, which is off as Kafka's.

    ``more``: further settings. ``command`` replaces the start of the command line.
    """

    name = OURS
    id = DAEMON_ID
    ready_pattern = "took office at epoch"
    writes = 1

    def __init__(
        self,
        folder: Path,
        connect: str,
        *,
        more: Mapping[str, object] | None = None,
        command: Sequence[str] | None = None,
    ) -> None:
        defaults = Settings.model_validate(
            {"zookeeper": {"connect": connect}, "listener": {"advertised_host": "127.0.0.1"}}
        )
        settings: dict[str, object] = {
            "zookeeper.session_timeout_ms": defaults.zookeeper.session_timeout_ms,
            "controller.loop_stall_ms_max": defaults.controller.loop_stall_ms_max,
            "controller.auto_leader_rebalance_enable": False,
            "log.format": "json",
            **(more or {}),
        }
        self.daemon = RegentProcess(folder, connect, controller_id=DAEMON_ID, settings=settings, command=command)
        super().__init__(self.daemon, role.give_to_regent)

    @property
    def port(self) -> int:
        """Returns the port of the controller listener."""
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
        """Returns the seconds of the claim, of the reads and of the decisions, which take the rest until ready."""
        claimed, ready = log.find("claimed epoch"), log.find(self.ready_pattern)
        if claimed is None or ready is None:
            return {}
        line = next(line for line in log.lines if re.search(self.ready_pattern, line))
        found = re.search(r"read in ([\d.]+) s", json.loads(line)["event"])
        read_s = float(found[1]) if found else 0.0
        return {"claim": claimed - began_s, "read": read_s, "elections": ready - claimed - read_s}

    async def lag(self) -> Lag:
        """Reads the lag of the event loop so far."""
        [longest] = (await self.daemon.metric("regent_loop_lag_longest_seconds")).values()
        buckets = await self.daemon.metric("regent_loop_lag_seconds_bucket")
        counts = {float(bound): count for text, count in buckets.items() for bound in re.findall(r'le="(.+)"', text)}
        return Lag(longest, counts)


class Kafka(Contestant):
    """Kafka's own controller in a process without replicas and without a registration as a broker."""

    name = PEER
    id = PEER_ID
    ready_pattern = "Ready to serve as the new controller"
    writes = 2

    def __init__(self, folder: Path, connect: str, heap_mb: int) -> None:
        self.server = PeerProcess(folder, connect, heap_mb)
        super().__init__(self.server, role.give_to_kafka)

    @property
    def port(self) -> int:
        """Returns the port of the inter-broker listener."""
        return self.server.port

    async def boot(self, zk: ZooKeeper) -> None:
        """Starts it and removes its registration, so that both controllers have the same brokers."""
        await self.server.boot()
        await zk.delete(paths.broker(PEER_ID), ANY_VERSION)

    def follow(self) -> LogFollower:
        """See :class:`Contestant`."""
        return LogFollower(self.server.controller_log, log4j_stamp)

    async def idle(self) -> bool:
        """Compares elections and resignations in its log, which take turns."""
        text = self.server.controller_log.read_text(errors="replace")
        elected, resigned = text.rfind("successfully elected as the controller"), text.rfind("Resigned")
        return resigned >= elected

    def phases(self, log: LogFollower, began_s: float) -> Phases:
        """Returns the seconds of election and reads, of the replica machine and of the partition machine."""
        times = [log.find(p) for p in ("Initializing replica state", "Initializing partition state", "Ready to serve")]
        if None in times:
            return {}
        replicas, partitions, ready = (t for t in times if t is not None)
        return {
            "elected and read": replicas - began_s,
            "replica machine": partitions - replicas,
            "partition machine": ready - partitions,
        }
