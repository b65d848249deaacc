"""Reads ZooKeeper for the shadow, with the zxids that order the reads."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from controller.kafka.shadow.judgement import Seen
from metadata_store import paths
from metadata_store.codecs.base import MalformedNode
from metadata_store.codecs.topic import decode_state
from metadata_store.kafka_store import KafkaStore
from metadata_store.nodes.cluster_nodes import read_controller, read_epoch
from metadata_store.port import Node, ZooKeeper
from state_machines.model.types import Broker, Leadership, TopicAssignment

log = logging.getLogger("regent.shadow")


class RoleReading(Struct, frozen=True):
    """Registrations and the role, as of one reading.

    ``zxid``: last registration or deregistration. ``holder``: broker id in ``/controller``, None without a holder
    (-1 where it cannot be read). ``epoch``: controller epoch, with its last change at
    ``epoch_zxid``. ``read_zxid``: later reads are not older than this zxid.
    """

    reading: int
    brokers: dict[int, Broker]
    zxid: int
    holder: int | None
    epoch: int
    epoch_zxid: int
    read_zxid: int


class Reader:
    """Reads through ``zk``; logs malformed znodes once by path and leaves them out."""

    def __init__(self, zk: ZooKeeper) -> None:
        self.zk = zk
        self.readings = 0
        self._store = KafkaStore(zk)
        self._reported: dict[str, str] = {}

    async def role_seen(self, known_epoch: int | None) -> RoleReading:
        """Reads the registrations, then the role; again the registrations where the role has changed hands.

        So a broker that is missing here is missing for a controller that holds the epoch read after it.
        """
        self.readings += 1
        brokers, zxid = await self._brokers()
        holder, epoch, epoch_zxid = await self._role()
        if epoch != known_epoch:
            brokers, zxid = await self._brokers()
        return RoleReading(self.readings, brokers, zxid, holder, epoch, epoch_zxid, self.zk.last_zxid)

    async def _brokers(self) -> tuple[dict[int, Broker], int]:
        while True:
            before = await self.zk.exists(paths.BROKER_IDS)
            found = await self._store.load_brokers()
            after = await self.zk.exists(paths.BROKER_IDS)
            if (before and before.pzxid) == (after and after.pzxid):
                break
        for bad in found.malformed:
            self._report(bad)
        return found.brokers, after.pzxid if after is not None else 0

    async def _role(self) -> tuple[int | None, int, int]:
        controller, epoch = await read_controller(self.zk), await read_epoch(self.zk)
        holder: int | None = None
        if controller is not None:
            holder = -1 if isinstance(controller.value, MalformedNode) else controller.value.broker
        if epoch is None or isinstance(epoch.value, MalformedNode):
            return holder, 0, 0
        return holder, epoch.value, epoch.stat.mzxid

    async def names(self, parent: str) -> frozenset[str] | None:
        """Reads the children of ``parent``, None where it does not exist."""
        listed = await self.zk.children(parent)
        return frozenset(listed[0]) if listed is not None else None

    async def topics(self, names: Iterable[str]) -> list[TopicAssignment]:
        """Reads topics; leaves out malformed and missing ones."""
        good: list[TopicAssignment] = []
        for found in await self._store.load_topics(sorted(names)):
            if isinstance(found, TopicAssignment):
                good.append(found)
            elif found is not None:
                self._report(found)
        return good

    async def states(self, named: Sequence[tuple[int, str, int]]) -> list[tuple[int, Seen]]:
        """Reads state znodes of (row, topic, partition); leaves out missing ones."""
        wanted = [paths.state(topic, partition) for _, topic, partition in named]
        found = await self.zk.read_many(wanted)
        return list(self._seen([row for row, _, _ in named], wanted, found))

    def _seen(self, rows: Sequence[int], wanted: Sequence[str], found: Sequence[object]) -> Iterator[tuple[int, Seen]]:
        for row, path, node in zip(rows, wanted, found, strict=True):
            if not isinstance(node, Node):
                continue
            state = decode_state(node.data, node.stat.version, path=path)
            if isinstance(state, Leadership):
                yield row, Seen(state, node.stat.mzxid, self.readings)
            else:
                self._report(state)

    def _report(self, bad: MalformedNode) -> None:
        if self._reported.get(bad.path) != bad.why:
            self._reported[bad.path] = bad.why
            log.warning("%s cannot be read: %s; it is not compared until it is repaired", bad.path, bad.why)
