"""Writes znodes of running topics as no controller would: without unknown fields, or with garbage."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from metadata_store import paths
from metadata_store.codecs.topic import encode_topic
from metadata_store.errors import ConnectFailed, NotConnected, OutcomeUnknown, ZkError
from metadata_store.kafka_store import KafkaStore
from state_machines.model.types import TopicAssignment
from tests.simulation.kafka.acting import Acting

GARBAGE: Final = b'{"version":1,"leader":'
AGAIN_S: Final = 0.2
UNSENT: Final = (ConnectFailed, NotConnected, OutcomeUnknown)


class ForeignActions(Acting):
    """Acts as other writers. Each write is conditional on its read, as far as the faults allow."""

    def do_rewrite_topic(self, name: str) -> None:
        """Rewrites the znode of a running topic as a tool from before topic ids does."""
        self.w.operate(self._rewrite(name))

    def do_scribble_state(self, name: str, partition: int, for_s: float) -> None:
        """Writes garbage into the state znode of a partition, and its former content some time later."""
        if self.w.ibp.alter_partition:
            self.w.operate(self._scribble((name, partition), for_s))

    async def _rewrite(self, name: str) -> None:
        topic = await self._read(name)
        if topic is not None and topic.topic_id is not None and self.w.invariants.history.current((name, 0)):
            await self._put(topic, None)

    async def give_back(self, name: str, topic_id: bytes) -> None:
        """Writes a topic id back as an operator does, from the daemon's log."""
        topic = await self._read(name)
        if topic is not None and topic.topic_id is None:
            await self._put(topic, topic_id)

    async def _read(self, name: str) -> TopicAssignment | None:
        await self.w.operator.sync("/")
        [found] = await KafkaStore(self.w.operator).load_topics([name])
        return found if isinstance(found, TopicAssignment) else None

    async def _put(self, topic: TopicAssignment, topic_id: bytes | None) -> None:
        data = encode_topic(topic.partitions, topic_id, topic.unknown)
        await self.w.operator.set(paths.topic(topic.name), data, topic.version)

    async def _scribble(self, key: tuple[str, int], for_s: float) -> None:
        path, zk = paths.state(*key), self.w.operator
        await zk.sync("/")
        found = await zk.get(path)
        if found is None or key in self.w.invariants.history.scribbled:
            return
        self.w.scribbling += 1
        try:
            await zk.set(path, GARBAGE, found.stat.version)
            await asyncio.sleep(for_s)
            await self._restore(path, found.data)
        finally:
            self.w.scribbling -= 1

    async def _restore(self, path: str, data: bytes | None) -> None:
        """Retries until the znode has its former content, or that of another writer.

        The znode may belong to a recreated topic by then.
        """
        zk = self.w.operator
        while True:
            try:
                await zk.connect(10.0)
                await zk.sync("/")
                found = await zk.get(path)
                if found is None or found.data != GARBAGE:
                    return
                with suppress(ZkError):
                    await zk.set(path, data, found.stat.version)
            except UNSENT:
                await asyncio.sleep(AGAIN_S)
            else:
                return
