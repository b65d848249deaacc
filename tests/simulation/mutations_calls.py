"""Plants bugs in the responses to admin clients."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from unittest import mock

from controller.engine.controller import Controller
from state_machines.model.types import Topic
from tests.simulation.planting import mutation


@mutation
def answer_before_it_is_deleted(stack: ExitStack) -> None:
    """Responds to DeleteTopics once the topics are marked."""

    async def wait(_c: Controller, _waiting: Sequence[Topic], _timeout_s: float) -> set[str]:
        return set()

    stack.enter_context(mock.patch("controller.handlers.delete_topics._wait", wait))


@mutation
def answer_before_it_is_started(stack: ExitStack) -> None:
    """Responds to CreateTopics once the topics are written; their leaders come with the next event."""

    async def start(_c: Controller, _names: list[str]) -> None: ...

    async def unled(*_: object) -> frozenset[str]:
        return frozenset()

    stack.enter_context(mock.patch("controller.handlers.create_topics._start", start))
    stack.enter_context(mock.patch("controller.handlers.create_topics.topics_without_leaders", unled))
