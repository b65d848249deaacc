"""Removes topics by hand, and creates them anew under the same name: brokers are sent nothing of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from controller.http.documents import ViewError
from controller.operator.deletions import DeletionView, GiveUpRequest
from metadata_store import paths
from metadata_store.errors import Code, ConnectFailed, NotConnected, OutcomeUnknown, ZkError
from metadata_store.port import ANY_VERSION, Delete, Op
from testing.znodes import create_topic, topic
from tests.simulation.kafka import faults
from tests.simulation.kafka.acting import Acting, ids

AGAIN_S: Final = 0.2


class TopicActions(Acting):
    """Acts as an operator, or an old tool, that marks topics or deletes their znodes.

    Brokers keep logs and metadata of a topic that is deleted by hand. A broker with a replica of it refuses the next
    topic of that name.
    """

    def do_delete_topic(self, name: str) -> None:
        """Deletes the znodes of a topic, children first."""
        self.w.operate(self._replace(name, 0.0, {}))

    def do_recreate_topic(self, name: str, gap_s: float, *replicas: object) -> None:
        """Deletes a topic and creates it again ``gap_s`` later; 0: in the multi that ends the old topic."""
        self.w.operate(self._replace(name, gap_s, dict(enumerate(map(ids, replicas)))))

    def do_mark_topic(self, name: str) -> None:
        """Creates a topic's deletion marker as an operator, whether the topic exists or not."""
        self.w.operate(self._mark(name))

    async def _mark(self, name: str) -> None:
        with suppress(ZkError, NotConnected, OutcomeUnknown):
            await self.w.operator.create(paths.deletion(name), None)

    def do_give_up(self, name: str, *brokers: int) -> None:
        """Ends the wait of a deletion for brokers that never return."""
        self.w.operate(self._give_up(name, brokers))

    async def _give_up(self, name: str, brokers: tuple[int, ...]) -> None:
        term, topic = self.w.serving_term(), self.w.invariants.history.topics.get(name)
        if term is None or topic is None:
            return
        waits = [(topic.czxid, broker) for broker in brokers]
        self.w.invariants.history.given_up.update(dict.fromkeys(waits, False))
        with suppress(ViewError):
            request = GiveUpRequest(topic=name, brokers=list(brokers))
            await DeletionView(lambda: term).given_up(request, "an operator")
            self.w.invariants.history.given_up.update(dict.fromkeys(waits, True))

    async def _replace(self, name: str, gap_s: float, placed: dict[int, tuple[int, ...]]) -> None:
        topic_id = self.w.chance.randbytes(16) if self.w.chance.random() < 0.5 else None
        self.w.removing += 1
        try:
            async with self.w.one_removes:
                known = name in self.w.invariants.history.topics
                await self._removed(name, placed if gap_s == 0 else {}, topic_id)
            if known:
                self.w.happened(faults.OPERATOR_RECREATED if placed else faults.OPERATOR_DELETED)
            if placed and gap_s:
                await asyncio.sleep(gap_s)
                with suppress(ZkError, NotConnected, OutcomeUnknown):
                    await create_topic(self.w.operator, name, placed, topic_id)
        finally:
            self.w.removing -= 1

    async def _removed(self, name: str, placed: dict[int, tuple[int, ...]], topic_id: bytes | None) -> None:
        """Retries until the topic is deleted: no controller would complete half a removal."""
        zk, path = self.w.operator, paths.topic(name)
        last: list[Op] = [Delete(path, ANY_VERSION)]
        if placed:
            last.append(topic(name, placed, topic_id))
        while True:
            try:
                await zk.connect(10.0)
                await zk.sync("/")
                await self._remove(paths.partitions(name))
                await zk.multi(last)
            except (ConnectFailed, NotConnected, OutcomeUnknown):
                await asyncio.sleep(AGAIN_S)
            except ZkError as error:
                if error.code is Code.NO_NODE:
                    return
                if error.code is not Code.NOT_EMPTY:
                    raise
                await asyncio.sleep(AGAIN_S)
            else:
                return

    async def _remove(self, path: str) -> None:
        zk = self.w.operator
        listed = await zk.children(path)
        for child in listed[0] if listed is not None else ():
            await self._remove(f"{path}/{child}")
        try:
            await zk.delete(path, ANY_VERSION)
        except ZkError as error:
            if error.code is not Code.NO_NODE:
                raise
