"""Keeps the shadow's simulated cluster in ZooKeeper's memory double: each change writes znodes as Kafka does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from unittest import mock

import anyio
import pytest

from controller.kafka.shadow.report import Report
from controller.kafka.shadow.shadow import Shadow
from metadata_store import paths
from metadata_store.codecs.cluster import encode_broker
from metadata_store.codecs.controller import ControllerZnode, encode_controller, encode_epoch
from metadata_store.codecs.topic import encode_state, encode_topic
from metadata_store.port import ANY_VERSION, Create, Delete, Op, SetData, WatchEvent, Write
from testing.memory import MemoryServer, MemoryZooKeeper
from testing.znodes import PERSISTENT_WITH_PARENTS
from tests.kit.deadlines import eventually
from tests.kit.kafka.shadow import Name, ShadowWorld

POLL_S = 0.2
WAIT_S = 1.0


class _NoEvents:
    """Ignores the events of the world's own session."""

    def event(self, event: WatchEvent) -> None: ...
    def dropped(self) -> None: ...
    def restored(self) -> None: ...
    def expired(self) -> None: ...


class StoredWorld(ShadowWorld):
    """Holds a world whose znodes are in :attr:`server`."""

    def __init__(
        self, brokers: Sequence[int] = (1, 2, 3, 9), holder: int = 9, server: MemoryServer | None = None
    ) -> None:
        self.server = server or MemoryServer()
        self.session = self.server.open(_NoEvents(), None)
        self._do(*(Create(path, None) for path in (*PERSISTENT_WITH_PARENTS, paths.CONTROLLER_EPOCH)))
        super().__init__(brokers, holder)

    def _ensure(self, path: str) -> None:
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            parent = "/" + "/".join(parts[:depth])
            if self.server.tree.stat(parent) is None:
                self._do(Create(parent, None))

    def _do(self, *ops: Op) -> None:
        self.server.write(self.session, ops, single=False)

    def _put(self, path: str, data: bytes) -> None:
        there = self.server.tree.stat(path) is not None
        self._do(SetData(path, data, ANY_VERSION) if there else Create(path, data))

    def register(self, b: int) -> None:
        super().register(b)
        self._put(paths.broker(b), encode_broker(self.brokers[b], timestamp_ms=0))

    def deregister(self, *gone: int) -> None:
        for b in gone:
            held = self.holder == b
            super().deregister(b)
            ops: list[Op] = [Delete(paths.broker(b), ANY_VERSION)]
            self._do(*ops, *([Delete(paths.CONTROLLER, ANY_VERSION)] if held else []))

    def elect(self, b: int) -> None:
        super().elect(b)
        self._put(paths.CONTROLLER, encode_controller(ControllerZnode(b)))
        self._put(paths.CONTROLLER_EPOCH, encode_epoch(self.epoch))

    def create(self, name: str, *replicas: tuple[int, ...]) -> None:
        super().create(name, *replicas)
        self._put(paths.topic(name), encode_topic(self.topics[name].partitions, None))

    def rewrite(self, name: str, *replicas: tuple[int, ...], adding: tuple[int, ...] = ()) -> None:
        """Rewrites the topic znode: more partitions, or other replicas (a reassignment while ``adding``)."""
        self.reassign(name, *replicas, adding=adding)
        self._put(paths.topic(name), encode_topic(self.topics[name].partitions, None))

    def mark_deleted(self, name: str) -> None:
        """Marks a topic for deletion, as a broker does."""
        self._do(Create(f"{paths.DELETE_TOPICS}/{name}", None))

    def spoil(self, name: Name) -> None:
        """Writes malformed data into a state znode."""
        self._put(paths.state(*name), b"\x00")

    def delete(self, name: str) -> None:
        gone = [key for key in self.states if key[0] == name]
        super().delete(name)
        for key in gone:
            self._do(Delete(paths.state(*key), ANY_VERSION), Delete(paths.partition(*key), ANY_VERSION))
        if gone:
            self._do(Delete(paths.partitions(name), ANY_VERSION))
        self._do(Delete(paths.topic(name), ANY_VERSION))

    def write(self, name: Name, leader: int, epoch: int, isr: Sequence[int]) -> None:
        super().write(name, leader, epoch, isr)
        self._ensure(paths.partition(*name))
        self._put(paths.state(*name), encode_state(leader, epoch, tuple(isr), self.epoch))


class NoWrites:
    """Refuses the writes of the shadow's session."""

    async def before(self, ops: Sequence[Write]) -> None:
        pytest.fail(f"the shadow writes {ops}")

    async def after(self, ops: Sequence[Write]) -> None: ...


@asynccontextmanager
async def shadowing(
    server: MemoryServer, shadow: Shadow | None = None
) -> AsyncIterator[tuple[Shadow, MemoryZooKeeper]]:
    """Runs a shadow on the loop's clock and a session of its own inside the block; raises an error that ends it."""
    zk = MemoryZooKeeper(server, hooks=NoWrites())
    await zk.connect(1)
    shadow = shadow or Shadow(poll_s=POLL_S, wait_s=WAIT_S)
    clock = SimpleNamespace(monotonic=asyncio.get_running_loop().time)
    try:
        with mock.patch("controller.kafka.shadow.shadow.time", clock):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(shadow.run, zk)
                await shadow.following.wait()
                yield shadow, zk
                tasks.cancel_scope.cancel()
    finally:
        await zk.close()


def stored(*replicas: tuple[int, ...], holder: int = 9) -> StoredWorld:
    """Creates a cluster with topic ``t``."""
    made = StoredWorld(holder=holder)
    made.create("t", *replicas)
    made.controller.finish()
    return made


async def reported(shadow: Shadow, check: Callable[[Report], bool]) -> Report:
    """Waits for a report that meets a condition while no partition waits."""
    await eventually(lambda: check(shadow.report()) and not shadow.tracker.waiting)
    return shadow.report()


def agreed(report: Report, event: str) -> int:
    """Counts the decisions of one kind of event that agree."""
    return sum(count for kind, count in report.compared.items() if kind.startswith(event))
