"""Calls on their way through the queue: posted as events, answered when the handler has set the result."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from brokers.controller_listener import NotController
from brokers.wire.calls import AllocateProducerIdsCall, AlterPartitionCall, ControlledShutdownCall
from brokers.wire.replies import AllocateProducerIdsReply, AlterPartitionReply, ControlledShutdownReply
from controller.deletion_call import DeleteTopicsCall, DeleteTopicsReply
from controller.election_call import ElectLeadersCall, ElectLeadersReply
from controller.event_queue import Event, EventQueue, QueueFull

C = TypeVar("C")


class PendingCall:
    """A call and the future of its reply; a caller that went away is not waited for."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answer(self, reply: object) -> None:
        """Answers, unless nobody waits any more."""
        if not self.reply.done():
            self.reply.set_result(reply)

    def refuse(self) -> None:
        """The term ended first: the broker must look the controller up again (KAFKA-10193)."""
        if not self.reply.done():
            self.reply.set_exception(NotController())


async def ask(queue: EventQueue, kind: str, call: object) -> Any:
    """Posts a call as an event of ``kind`` and waits for its reply; raises ``NotController`` where there is none."""
    pending = PendingCall(call)
    try:
        queue.post(Event(kind, pending, preempt=pending.refuse))
    except QueueFull as full:
        raise NotController from full
    return await pending.reply


class Calls:
    """Implements :class:`brokers.controller_listener.CallHandlers` for one term."""

    def __init__(self, queue: EventQueue) -> None:
        self._queue = queue

    async def controlled_shutdown(self, call: ControlledShutdownCall) -> ControlledShutdownReply:
        """Moves what the broker leads."""
        reply: ControlledShutdownReply = await self._ask("controlled_shutdown", call)
        return reply

    async def alter_partition(self, call: AlterPartitionCall) -> AlterPartitionReply:
        """Commits ISR changes."""
        reply: AlterPartitionReply = await self._ask("alter_partition", call)
        return reply

    async def allocate_producer_ids(self, call: AllocateProducerIdsCall) -> AllocateProducerIdsReply:
        """Hands out a block of producer ids."""
        reply: AllocateProducerIdsReply = await self._ask("allocate_producer_ids", call)
        return reply

    async def delete_topics(self, call: DeleteTopicsCall) -> DeleteTopicsReply:
        """Deletes topics."""
        reply: DeleteTopicsReply = await self._ask("delete_topics", call)
        return reply

    async def elect_leaders(self, call: ElectLeadersCall) -> ElectLeadersReply:
        """Holds the elections that an administrator asks for."""
        reply: ElectLeadersReply = await self._ask("elect_leaders", call)
        return reply

    async def _ask(self, kind: str, call: object) -> Any:
        return await ask(self._queue, kind, call)
