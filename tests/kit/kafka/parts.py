"""Parts of the controller's world: a clock, scripted write hooks, and sockets that only record."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

from brokers.wire.primitives import compact_string, varint
from metadata_store.errors import NotConnected
from metadata_store.port import Kill, Write
from testing.memory import MemoryServer, MemoryZooKeeper
from tests.kit.wire import read_request, unframe

DAEMON: Final = 1_000_001
SECRET = b"a secret of daemons and endpoint"
LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 4, 5, 6
SESSION_S: Final = 6.0


class Clock:
    """The lease's clock: stands still unless a test moves it."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Planned:
    """An act at the next ``left`` writes of a path."""

    path: str
    act: Callable[[], Any]
    when: str
    exact: bool
    left: int

    def meets(self, moment: str, ops: Sequence[Write]) -> bool:
        """Returns whether one of these writes is meant."""
        return moment == self.when and any(self.path == op.path if self.exact else self.path in op.path for op in ops)


class Script:
    """Write hooks: count the writes of a session, and act as a test plans before or after one of them."""

    def __init__(self) -> None:
        self.writes: list[list[str]] = []
        self._planned: list[Planned] = []
        self._kill: tuple[int, str] | None = None

    def at(
        self, path: str, act: Callable[[], Any], *, when: str = "before", exact: bool = False, times: int = 1
    ) -> None:
        """Acts before (or after) each of the next ``times`` writes of a path that contains ``path``, or is it."""
        if times:
            self._planned.append(Planned(path, act, when, exact, times))

    @property
    def left(self) -> int:
        """How many planned acts have not been due yet."""
        return sum(planned.left for planned in self._planned)

    def kill_at(self, number: int, when: str) -> None:
        """Kills the process before or after its ``number``-th write from now on."""
        self.writes.clear()
        self._kill = number, when

    async def before(self, ops: Sequence[Write]) -> None:
        self.writes.append([op.path for op in ops])
        await self._act(ops, "before")

    async def after(self, ops: Sequence[Write]) -> None:
        await self._act(ops, "after")

    async def _act(self, ops: Sequence[Write], moment: str) -> None:
        if self._kill == (len(self.writes), moment):
            raise Kill
        for planned in [one for one in self._planned if one.meets(moment, ops)]:
            planned.left -= 1
            if not planned.left:
                self._planned.remove(planned)
            done = planned.act()
            if asyncio.iscoroutine(done):
                await done


class Wires:
    """Keeps the requests to every broker, and responds at once.

    ``errors``: top-level error by broker. ``refused``: errors of partitions in answers to StopReplica, by broker.
    ``silent``: brokers that do not answer requests of ``silent_to`` (None: any); :meth:`speak` lets them.
    ``errors``: top-level error by broker; ``lost``: partitions whose log directory failed, by broker.
    """

    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes]] = []
        self.errors: dict[int, int] = {}
        self.refused: dict[int, dict[tuple[str, int], int]] = {}
        self.silent: set[int] = set()
        self.silent_to: int | None = STOP_REPLICA
        self._responding = asyncio.Event()
        self.lost: dict[int, set[tuple[str, int]]] = {}
        self.gate: Callable[[], bool] = lambda: True
        self.sent_while_closed = 0
        self.open = 0

    async def connect(self, host: str, _port: int, _on_lost: Callable[[], None]) -> Wire:
        self.open += 1
        return Wire(self, int(host.rpartition("-")[2]))

    def requests(self, broker: int, api: int | None = None) -> list[Any]:
        """Requests that a broker got, as kio reads them."""
        found = [read_request(frame) for to, frame in self.frames if to == broker]
        return [entity for header, entity in found if api in (None, header.request_api_key)]

    def last_sent(self, broker: int, api: int) -> dict[tuple[str, int], tuple[int, int]]:
        """Leader and leader epoch of each partition in the last request to a broker that names it."""
        return {name: (p.leader, p.leader_epoch) for name, p in self.partitions(broker, api)}

    def partitions(self, broker: int, api: int) -> list[tuple[tuple[str, int], Any]]:
        """Name and state of each partition in the requests that a broker got, in order."""
        return [
            ((topic.topic_name, p.partition_index), p)
            for entity in self.requests(broker, api)
            for topic in entity.topic_states
            for p in topic.partition_states
        ]

    def offline(self, broker: int) -> dict[tuple[str, int], tuple[int, ...]]:
        """Offline replicas of each partition in the last UpdateMetadata to a broker that names it."""
        return {name: tuple(p.offline_replicas) for name, p in self.partitions(broker, UPDATE_METADATA)}

    def is_new(self, broker: int) -> dict[tuple[str, int], bool]:
        """Whether the last LeaderAndIsr to a broker that names a partition has its replica as a new one."""
        return {name: p.is_new for name, p in self.partitions(broker, LEADER_AND_ISR)}

    def respond(self, *brokers: int) -> None:
        """Has silent brokers respond."""
        self.silent.difference_update(brokers)
        self._responding.set()

    async def until_it_responds(self, broker: int) -> None:
        """Waits as long as a broker is silent."""
        while broker in self.silent:
            self._responding.clear()
            await self._responding.wait()

    def stopped(self, broker: int) -> set[tuple[str, int]]:
        """Partitions in StopReplica requests to a broker."""
        return {name for name, _ in self.partitions(broker, STOP_REPLICA)}

    def deleted(self, broker: int) -> list[tuple[str, int]]:
        """Partitions that StopReplica requests to a broker delete, once for each time."""
        return [name for name, p in self.partitions(broker, STOP_REPLICA) if p.delete_partition]


class Wire:
    """One connection."""

    def __init__(self, wires: Wires, broker: int) -> None:
        self._wires = wires
        self._broker = broker
        self.closed = False

    async def exchange(self, parts: Sequence[bytes]) -> bytes:
        frame = unframe(parts)
        self._wires.frames.append((self._broker, frame))
        self._wires.sent_while_closed += not self._wires.gate()
        api, correlation = int.from_bytes(frame[:2], "big"), frame[4:8]
        error = self._wires.errors.get(self._broker, 0).to_bytes(2, "big")
        await asyncio.sleep(0)
        if self._wires.silent_to in (api, None):
            await self._wires.until_it_responds(self._broker)
        if api == LEADER_AND_ISR and (lost := self._wires.lost.get(self._broker)):
            return correlation + b"\0" + error + storage_errors(read_request(frame)[1], lost)
        failed = partition_errors(self._wires.refused.get(self._broker, {})) if api == STOP_REPLICA else b""
        return correlation + b"\0" + error + (b"\0" if api == UPDATE_METADATA else (failed or b"\1") + b"\0")

    def close(self) -> None:
        if not self.closed:
            self._wires.open -= 1
        self.closed = True


def partition_errors(errors: Mapping[tuple[str, int], int]) -> bytes:
    """Encodes the array of partitions in a response to StopReplica."""
    parts = [compact_string(name) + struct.pack(">ihx", number, error) for (name, number), error in errors.items()]
    return b"".join((varint(len(parts) + 1), *parts))


def storage_errors(request: Any, lost: set[tuple[str, int]]) -> bytes:
    """Encodes the rest of a response to LeaderAndIsr (from v5 on) with error 56 for lost partitions."""
    topics = []
    for topic in request.topic_states:
        found = [p.partition_index for p in topic.partition_states if (topic.topic_name, p.partition_index) in lost]
        if found:
            entries = b"".join(number.to_bytes(4, "big") + (56).to_bytes(2, "big") + b"\0" for number in found)
            topics.append(topic.topic_id.bytes + bytes([len(found) + 1]) + entries + b"\0")
    return bytes([len(topics) + 1]) + b"".join(topics) + b"\0"


@contextmanager
def loses_connection(server: MemoryServer, zk: MemoryZooKeeper, turn: int) -> Iterator[None]:
    """Loses the connection of a client at one of its next turns, which has to come."""
    left, really = turn, zk._turn

    async def lossy() -> None:
        nonlocal left
        left -= 1
        if left == -1:
            server.reconnect(zk.session_id)
            raise NotConnected("lost")
        await really()

    with mock.patch.object(zk, "_turn", lossy):
        yield
    assert left < 0
