"""Plants bugs in the responses to admin clients."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from unittest import mock

from controller.kafka.path.controller import Controller
from controller.procedures.recorder import CallRecord
from metadata_store.fencing.companion import Companion
from state_machines.model.types import Topic
from state_machines.procedures.record import Record
from tests.kit.simulation.planting import put
from tests.simulation.kafka.planting import mutation


@mutation
def answer_before_it_is_deleted(stack: ExitStack) -> None:
    """Responds to DeleteTopics once the topics are marked."""

    async def wait(_c: Controller, _waiting: Sequence[Topic], _timeout_s: float) -> set[str]:
        return set()

    stack.enter_context(mock.patch("controller.kafka.topics.delete_topics._wait", wait))


@mutation
def answer_before_it_is_started(stack: ExitStack) -> None:
    """Responds to CreateTopics once the topics are written; their leaders come with the next event."""

    async def start(_c: Controller, _names: list[str]) -> None: ...

    async def unled(*_: object) -> frozenset[str]:
        return frozenset()

    stack.enter_context(mock.patch("controller.kafka.topics.create_topics._start", start))
    stack.enter_context(mock.patch("controller.kafka.topics.create_topics.topics_without_leaders", unled))


@mutation
def record_a_call_before_its_effect(stack: ExitStack) -> None:
    """Writes the record of a call by itself, and then what the call changes."""

    async def companion(self: CallRecord, result: str) -> Companion | None:
        await self._write(result)
        return None

    put(stack, CallRecord, "companion", companion)


@mutation
def record_a_repeated_call_again(stack: ExitStack) -> None:
    """Gives a call that is repeated after a failover another pid."""

    def earlier(self: CallRecord) -> Record | None:
        return None

    put(stack, CallRecord, "_earlier", earlier)


@mutation
def leave_a_call_unrecorded(stack: ExitStack) -> None:
    """Carries calls out without a record, as where the records cannot be used, and counts none of them."""

    async def close(self: CallRecord, result: str | None = None, *, changed: bool = False) -> None: ...

    async def companion(self: CallRecord, result: str) -> Companion | None: ...

    put(stack, CallRecord, "close", close)
    put(stack, CallRecord, "companion", companion)
