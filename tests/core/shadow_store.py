"""The shadow's small world on an in-memory ZooKeeper: every change of it is a write of znodes as Kafka makes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio

from controller.shadow.shadow import Shadow
from metadata_store import paths
from metadata_store.codecs.broker import encode_broker
from metadata_store.codecs.controller import ControllerZnode, encode_controller, encode_epoch
from metadata_store.codecs.state import encode_state
from metadata_store.codecs.topic import encode_topic
from metadata_store.port import ANY_VERSION, Create, Delete, Op, SetData, WatchEvent, Write
from testing.memory import MemoryServer, MemoryZooKeeper
from testing.znodes import PARENTS
from tests.core.shadow_kit import Name, World

POLL_S = 0.2
WAIT_S = 1.0


class _Nobody:
    """The world's own connection: nothing happens to it."""

    def event(self, event: WatchEvent) -> None: ...
    def dropped(self) -> None: ...
    def restored(self) -> None: ...
    def expired(self) -> None: ...


class StoredWorld(World):
    """A world whose znodes are in :attr:`server`."""

    def __init__(self, brokers: Sequence[int] = (1, 2, 3, 9), holder: int = 9) -> None:
        self.server = MemoryServer()
        self.session = self.server.open(_Nobody(), None)
        self._do(*(Create(path, None) for path in (*PARENTS, paths.CONTROLLER_EPOCH)))
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
        """The topic znode changes: more partitions, or other replicas (a reassignment while ``adding``)."""
        self.reassign(name, *replicas, adding=adding)
        self._put(paths.topic(name), encode_topic(self.topics[name].partitions, None))

    def mark_deleted(self, name: str) -> None:
        """What a broker does that is asked to delete a topic."""
        self._do(Create(f"{paths.DELETE_TOPICS}/{name}", None))

    def spoil(self, name: Name) -> None:
        """Somebody writes what is no JSON into a state znode."""
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
    """Hooks of the shadow's session: what it writes is a failure of the test."""

    def __init__(self) -> None:
        self.written: list[Write] = []

    async def before(self, ops: Sequence[Write]) -> None:
        self.written += ops

    async def after(self, ops: Sequence[Write]) -> None: ...


@asynccontextmanager
async def shadowing(
    world: StoredWorld, *, poll_s: float = POLL_S, wait_s: float = WAIT_S
) -> AsyncIterator[tuple[Shadow, MemoryZooKeeper]]:
    """A shadow that follows ``world`` inside the block; at its end nothing was written by it."""
    hooks = NoWrites()
    zk = MemoryZooKeeper(world.server, hooks=hooks)
    await zk.connect(1)
    shadow = Shadow(poll_s=poll_s, wait_s=wait_s)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shadow.run, zk)
        await shadow.following.wait()
        yield shadow, zk
        tasks.cancel_scope.cancel()
    await zk.close()
    assert hooks.written == []
