"""Creates, expands and deletes topics by calls of admin clients, as the admin endpoint carries them to a daemon.

A client sends a call again with the same id where the daemon ends before its reply. I8: a successful reply is true and
stays true, and a daemon does nothing that no client requested.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from brokers.listener.controller_listener import NotController
from brokers.listener.envelopes import CarriedCall
from brokers.wire.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    GrownTopic,
)
from brokers.wire.versions import Api
from controller.kafka.requests.calls import Calls
from tests.simulation.kafka import faults
from tests.simulation.kafka.acting import Acting

if TYPE_CHECKING:
    from controller.kafka.term.term import Term
    from state_machines.model.types import TopicAssignment

TIMEOUT_MS: Final = 8_000
AGAIN_S_MAX: Final = 20.0
PAUSE_S: Final = 0.1
VERSIONS: Final = {Api.CREATE_TOPICS: 7, Api.CREATE_PARTITIONS: 3, Api.DELETE_TOPICS: 5}


class CallActions(Acting):
    """Acts as admin clients. Only a successful reply is checked: a refusal, or no reply, shows nothing."""

    def do_call_create(self, name: str, partitions: int, factor: int) -> None:
        """Sends CreateTopics."""
        self._begin(self._create_by_call(name, partitions, factor))

    async def _create_by_call(self, name: str, partitions: int, factor: int) -> None:
        self.w.invariants.history.to_be_created.add(name)
        topic = CreatableTopic(name, partitions, factor, (), ())
        history, calls = self.w.invariants.history, self.w.invariants.plans.calls
        call_id = self.w.chance.randbytes(16)
        calls.made(call_id.hex(), lambda: name in history.topics)
        reply = await self._carry(Api.CREATE_TOPICS, CreateTopicsRequest((topic,), TIMEOUT_MS), call_id)
        if reply is None or reply.topics[0].error_code:
            return
        self.w.happened(faults.CALL_CREATED)
        calls.succeeded(call_id.hex())
        made = [t for t in history.incarnations.values() if t.name == name and len(t.partitions) >= partitions]
        if reply.topics[0].topic_id.strip(b"\0"):
            made = [topic for topic in made if topic.topic_id == reply.topics[0].topic_id]
        led = all(history.ever((name, partition), 0) for partition in range(partitions))
        self._so(bool(made) and led, f"{name} with {partitions} partitions is created")

    def do_call_grow(self, name: str, added: int) -> None:
        """Sends CreatePartitions."""
        self._begin(self._grow_by_call(name, added))

    async def _grow_by_call(self, name: str, added: int) -> None:
        history = self.w.invariants.history
        if (found := history.topics.get(name)) is None:
            return
        count = len(found.partitions) + added
        request = CreatePartitionsRequest((GrownTopic(name, count, None),), TIMEOUT_MS, False)
        calls, call_id = self.w.invariants.plans.calls, self.w.chance.randbytes(16)
        calls.made(call_id.hex(), lambda: len(history.topics[name].partitions) >= count)
        reply = await self._carry(Api.CREATE_PARTITIONS, request, call_id)
        if reply is None or reply.results[0].error_code:
            return
        self.w.happened(faults.CALL_GREW)
        calls.succeeded(call_id.hex())
        grown = any(t.name == name and len(t.partitions) >= count for t in history.incarnations.values())
        self._so(grown and bool(history.ever((name, count - 1), 0)), f"{name} has {count} partitions")

    def do_call_delete(self, name: str) -> None:
        """Sends DeleteTopics."""
        self._begin(self._delete_by_call(name))

    async def _delete_by_call(self, name: str) -> None:
        history = self.w.invariants.history
        requested = history.topics.get(name)
        history.to_be_deleted.add(name)
        live = set(history.registered)
        call_id = self.w.chance.randbytes(16)
        self.w.invariants.plans.calls.made(call_id.hex(), lambda: name in history.markers or name not in history.topics)
        reply = await self._carry(Api.DELETE_TOPICS, DeleteTopicsRequest(TIMEOUT_MS, (name,)), call_id)
        if reply is None or reply.responses[0].error_code:
            return
        self.w.happened(faults.CALL_DELETED)
        found = history.topics.get(name)
        if found is None or requested is None or found.czxid != requested.czxid:
            return
        # A broker that has forgotten the topic may leave while the controller waits for others, as in Kafka.
        left = {broker for broker, node in self.w.brokers.items() if node.core.metadata}
        shown = [self._shows(broker, found) for broker in live.union(history.registered, left)]
        self._so(not history.registered or not all(shown), f"{name} is deleted, or forgotten by a broker")

    def _shows(self, broker: int, topic: TopicAssignment) -> bool:
        """Returns whether a broker shows a topic.

        A broker receives nothing of a partition that was removed by hand, nor of one whose state is garbage.
        """
        history = self.w.invariants.history
        unsent = history.unsent(broker)
        return any(
            key[0] == topic.name and key not in history.scribbled and (key[1] in topic.partitions or key not in unsent)
            for key in self.w.brokers[broker].core.metadata
        )

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        self.w.operate(self._counted(work))

    async def _counted(self, work: Coroutine[None, None, None]) -> None:
        self.w.calling += 1
        try:
            await work
        finally:
            self.w.calling -= 1

    def _so(self, holds: bool, what: str) -> None:
        if not holds:
            self.w.invariants.claimed(what)

    async def _carry(self, api: Api, body: Struct, call_id: bytes) -> Any:
        """Returns the reply, or None where no daemon replies in time."""
        attempt = 0
        until_s = self.w.loop.now_s + AGAIN_S_MAX
        while self.w.loop.now_s < until_s:
            if (term := self.w.serving_term()) is not None:
                call = CarriedCall(api, VERSIONS[api], body, "User:ANONYMOUS", "admin", "", call_id, attempt)
                attempt += 1
                try:
                    return await self._reply(term, call)
                except NotController:
                    self.w.trace(f"{api.name} is to be tried again, {attempt} tries")
            await asyncio.sleep(PAUSE_S)
        return None

    async def _reply(self, term: Term, call: CarriedCall) -> Any:
        """Returns a daemon's reply; gives up when the daemon ends, or another daemon's term serves."""
        carried, daemon = (
            asyncio.ensure_future(Calls(term.queue, term.authorizer, term.topic_name).carried(call)),
            self.w.serving_daemon(),
        )
        assert daemon is not None
        with self.w.liveness.call(call.api.name, daemon):
            while not carried.done() and self.w.serving_term() is term:
                await asyncio.wait({carried}, timeout=PAUSE_S)
        if not carried.done():
            carried.cancel()
            raise NotController
        reply = carried.result()
        self.w.trace(f"{call.api.name} is answered: {reply}")
        return reply
