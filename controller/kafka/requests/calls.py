"""Carries calls of brokers and admin clients through the queue: events whose handlers set the reply."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, Generic, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from brokers.listener.controller_listener import NotController
from brokers.listener.envelopes import CarriedCall
from brokers.wire.calls import AllocateProducerIdsCall, AlterPartitionCall, ControlledShutdownCall
from brokers.wire.errors import Error
from brokers.wire.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from brokers.wire.refusals import refusal
from brokers.wire.replies import AllocateProducerIdsReply, AlterPartitionReply, ControlledShutdownReply
from brokers.wire.versions import Api
from controller.kafka.access import Authorizer, Principals
from controller.kafka.path.events import Event, EventKind, EventQueue, QueueFull
from controller.kafka.path.remembered import Removal
from controller.kafka.requests.admission import NameOf, permitted
from controller.kafka.requests.codec import TRANSLATIONS, Translation, Unacceptable
from controller.kafka.requests.values import (
    AlterReassignments,
    AlterReassignmentsReply,
    DeleteTopicsCall,
    DeleteTopicsReply,
    ElectLeadersCall,
    ElectLeadersReply,
    ListReassignments,
    ListReassignmentsReply,
)
from controller.process.wording import counted, named
from state_machines.admin_rules.acls import Operation

C = TypeVar("C")
R = TypeVar("R")

Verdicts = Mapping[str, str | None]
"""Why topics are refused by the operator's policy, by name; None where they may be created."""
TOPICS_MAX: Final = 10_000
"""Topics of one request that creates, grows or deletes: judging them keeps the loop for a second."""
AS_CARRIED: Final[Mapping[Api, EventKind]] = {
    Api.CREATE_TOPICS: EventKind.CREATE_TOPICS,
    Api.CREATE_PARTITIONS: EventKind.CREATE_PARTITIONS,
    Api.ALTER_USER_SCRAM_CREDENTIALS: EventKind.ALTER_SCRAM_CREDENTIALS,
    Api.UPDATE_FEATURES: EventKind.UPDATE_FEATURES,
}
"""Calls of admin clients whose handlers read and write their messages; ``codec`` does it for the others."""
NAMES_MAX: Final = 10
"""Entities that a result names; the others are counted."""
ERRORS_MAX: Final = 5
"""Different errors that a result names."""


class Undrain(NamedTuple):
    """Brokers whose drains are removed, unless ``why_not`` gives a reason when its event is handled."""

    brokers: Collection[int]
    why_not: Callable[[], str | None]


class PendingCall(Generic[C, R]):
    """Pairs a call with the future of its reply; the reply to a caller that went away is dropped."""

    def __init__(self, call: C) -> None:
        self.call = call
        self.reply: asyncio.Future[R] = asyncio.get_running_loop().create_future()

    def answer(self, reply: R) -> None:
        """Sets the reply, unless the caller no longer waits."""
        if not self.reply.done():
            self.reply.set_result(reply)

    def refuse(self) -> None:
        """Refuses the call because the term ended first: the broker must look the controller up again (KAFKA-10193)."""
        if not self.reply.done():
            self.reply.set_exception(NotController())


class GiveUp(Struct, frozen=True):
    """Brokers that never return, for which a deletion waits. ``known``: the topic was being deleted when asked for."""

    topic: str
    brokers: tuple[int, ...]
    principal: str
    reason: str = ""
    known: bool = True


class PendingShutdown(PendingCall[ControlledShutdownCall, ControlledShutdownReply]):
    """A call for a broker's shutdown. ``by_operator``: an operator made it in the broker's place."""

    def __init__(self, call: ControlledShutdownCall, *, by_operator: bool = False) -> None:
        super().__init__(call)
        self.by_operator = by_operator


PendingUndo = PendingCall[int, bool]
"""An operator's call to undo the shutdown of a broker; the reply is whether an operator had shut it down."""
PendingUndrain = PendingCall[Undrain, str | None]
"""An operator's call to remove drains; the reply is why that failed, None where it did not."""
PendingAlterPartition = PendingCall[AlterPartitionCall, AlterPartitionReply]
PendingProducerIds = PendingCall[AllocateProducerIdsCall, AllocateProducerIdsReply]
PendingDeletion = PendingCall[DeleteTopicsCall, DeleteTopicsReply]
PendingElection = PendingCall[ElectLeadersCall, ElectLeadersReply]
PendingReassignment = PendingCall[AlterReassignments, AlterReassignmentsReply]
PendingListing = PendingCall[ListReassignments, ListReassignmentsReply]
PendingStrays = PendingCall[Removal, None]
"""An operator's call to remove strays; the reply says that the request is being sent."""
PendingGiveUp = PendingCall[GiveUp, str | None]
"""An operator's call to end a deletion's wait for brokers; the reply is why it goes on, None where it has ended."""


class PendingCarried(PendingCall[CarriedCall, Struct]):
    """A call whose handler reads the request's message and writes the response's.

    ``verdicts``: of the policy on new topics, None while it was not asked.
    """

    def __init__(self, call: CarriedCall) -> None:
        super().__init__(call)
        self.verdicts: Verdicts | None = None

    def refuse_unasked(self) -> None:
        """Refuses the call because the term ended before the policy had answered."""
        if self.verdicts is None:
            self.refuse()


def _topics(body: Struct) -> int:
    """Counts the topics that a request creates, grows or deletes."""
    match body:
        case CreateTopicsRequest() | CreatePartitionsRequest():
            return len(body.topics)
        case DeleteTopicsRequest():
            return len(body.topics) + len(body.topic_names)
    return 0


class Calls:
    """Implements :class:`brokers.listener.controller_listener.CallHandlers` for one term.

    ``authorizer``: judges admin clients' calls; ``name_of``: returns the topic with an id; ``registered``: checks
    whether a live broker has an epoch.
    """

    def __init__(
        self,
        queue: EventQueue,
        authorizer: Authorizer | None = None,
        name_of: NameOf = lambda _: None,
        registered: Callable[[int, int], bool] = lambda *_: True,
    ) -> None:
        self.registered = registered
        self._queue = queue
        self._authorizer = authorizer or Authorizer(Principals())
        self._name_of = name_of

    async def controlled_shutdown(
        self, call: ControlledShutdownCall, *, by_operator: bool = False
    ) -> ControlledShutdownReply:
        """Moves the leaders that are on the broker."""
        return await self._ask(EventKind.CONTROLLED_SHUTDOWN, PendingShutdown(call, by_operator=by_operator))

    async def undo_shutdown(self, broker: int) -> bool:
        """Undoes a shutdown that an operator requested; returns whether there was one."""
        return await self._ask(EventKind.UNDO_SHUTDOWN, PendingUndo(broker))

    async def undrain(self, undrain: Undrain) -> str | None:
        """Removes the drains of brokers; returns why that failed, None where it did not."""
        return await self._ask(EventKind.UNDRAIN, PendingUndrain(undrain))

    async def remove_strays(self, removal: Removal) -> None:
        """Has a broker delete strays; returns once they are judged and the request is being sent."""
        await self._ask(EventKind.REMOVE_STRAYS, PendingStrays(removal))

    async def give_up(self, wanted: GiveUp) -> str | None:
        """Ends the wait of a deletion for brokers; returns why it goes on, None where it has ended."""
        return await self._ask(EventKind.GIVE_UP, PendingGiveUp(wanted))

    async def alter_partition(self, call: AlterPartitionCall) -> AlterPartitionReply:
        """Commits ISR changes."""
        return await self._ask(EventKind.ALTER_PARTITION, PendingAlterPartition(call))

    async def allocate_producer_ids(self, call: AllocateProducerIdsCall) -> AllocateProducerIdsReply:
        """Hands out a block of producer ids."""
        return await self._ask(EventKind.ALLOCATE_PRODUCER_IDS, PendingProducerIds(call))

    async def delete_topics(self, call: DeleteTopicsCall) -> DeleteTopicsReply:
        """Deletes topics."""
        return await self._ask(EventKind.DELETE_TOPICS, PendingDeletion(call))

    async def elect_leaders(self, call: ElectLeadersCall) -> ElectLeadersReply:
        """Carries out requested elections."""
        return await self._ask(EventKind.ELECT_LEADERS, PendingElection(call))

    async def alter_reassignments(self, call: AlterReassignments) -> AlterReassignmentsReply:
        """Begins, overrides and cancels reassignments; the reply follows once that is durable and being sent."""
        return await self._ask(EventKind.ALTER_REASSIGNMENTS, PendingReassignment(call))

    async def list_reassignments(self, call: ListReassignments) -> ListReassignmentsReply:
        """Lists reassignments that are under way."""
        return await self._ask(EventKind.LIST_REASSIGNMENTS, PendingListing(call))

    async def carried(self, call: CarriedCall) -> Struct:
        """Enqueues the call of an admin endpoint's client; refuses the part without permission."""
        await self._authorizer.ready()
        if (count := _topics(call.body)) > TOPICS_MAX:
            why = f"the request names {count} topics, and at most {TOPICS_MAX} are taken at once: split it"
            return refusal(call.body, Error.INVALID_REQUEST, why)
        found = permitted(self._authorizer, call, self._name_of)
        if found.body is None:
            return found.whole(None)
        return found.whole(await self._carry(call if found.body is call.body else replace(call, body=found.body)))

    async def admits(self, principal: str, client_host: str) -> bool:
        """Checks whether a client at an admin endpoint may call as brokers do."""
        await self._authorizer.ready()
        return self._authorizer.may_cluster(principal, client_host, Operation.CLUSTER_ACTION)

    async def _carry(self, call: CarriedCall) -> Struct:
        if (translation := TRANSLATIONS.get(call.api)) is not None:
            return await self._translated(translation, call)
        return await self._ask(AS_CARRIED[call.api], PendingCarried(call))

    async def _translated(self, translation: Translation[C, R], call: CarriedCall) -> Struct:
        try:
            value = translation.read(call)
        except Unacceptable as why:
            return refusal(call.body, Error.INVALID_REQUEST, str(why))
        return translation.write(call, await self._ask(translation.kind, PendingCall[C, R](value)))

    async def _ask(self, kind: EventKind, pending: PendingCall[C, R]) -> R:
        """Posts a call as an event of ``kind`` and waits for its reply; raises ``NotController`` without one."""
        try:
            self._queue.post(Event(kind, pending, preempt=pending.refuse))
        except QueueFull as full:
            raise NotController from full
        return await pending.reply


def call_result(done: str, names: Sequence[object], noun: str, refused: Iterable[IntEnum] = ()) -> str:
    """Returns for instance "created 2 topics: a, b; refused: 1 x TOPIC_ALREADY_EXISTS"."""
    return "; ".join([f"{done} {counted(len(names), noun)}: {named(names, NAMES_MAX)}", *refusals(refused)])


def refusals(errors: Iterable[IntEnum]) -> list[str]:
    """Returns a part of a result with the number of each error, or no part where nothing was refused."""
    counts = Counter(error.name for error in errors)
    if not counts:
        return []
    return [f"refused: {named((f'{count} x {name}' for name, count in counts.most_common()), ERRORS_MAX)}"]
