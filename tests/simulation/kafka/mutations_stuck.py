"""Plants bugs by which work never goes on, or never ends, until an unrelated event makes it go on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from unittest import mock

from brokers.outbound.link import Link
from controller.daemon.state import DaemonState, Mode
from controller.kafka.path.controller import ConflictRounds, Controller
from controller.kafka.path.events import EventKind
from controller.kafka.topics import deletion
from controller.role.queue import PositionLost, QueueMember, QueuePosition
from tests.kit.simulation.planting import put
from tests.simulation.kafka.planting import mutation

LONG_S = 100.0
"""Seconds: shorter than the time of healed clusters, longer than any work may be stuck."""


@mutation
def poll_a_deletion_that_waits(stack: ExitStack) -> None:
    """Reads markers again and again while a topic waits for a broker."""
    delete = deletion._delete_znodes

    async def and_again(c: Controller) -> None:
        await delete(c)
        if c.cluster.deletions:
            c.queue.signal(EventKind.TOPIC_DELETION)

    put(stack, deletion, "_delete_znodes", and_again)


@mutation
def pause_longer_at_each_refused_connection(stack: ExitStack) -> None:
    """Tries again without a session after pauses that grow without a bound."""
    pause, refusals = DaemonState.pause, dict[DaemonState, int]()

    async def growing(self: DaemonState, seconds: float) -> None:
        if self.mode is Mode.CONNECTING:
            refusals[self] = refusals.get(self, 0) + 1
            seconds *= LONG_S ** (refusals[self] > 1)
        await pause(self, seconds)

    put(stack, DaemonState, "pause", growing)


@mutation
def pause_longer_at_each_lost_request(stack: ExitStack) -> None:
    """Tries a broker without a response again after a time that grows without a bound."""
    failed: Callable[[Link, str], None] = Link._failed

    def growing(self: Link, why: str) -> None:
        failed(self, why)
        if self._failing_since_s is not None and self._shared.now_s() - self._failing_since_s > LONG_S / 20:
            self._retry_at_s += LONG_S

    put(stack, Link, "_failed", growing)


@mutation
def decide_once(stack: ExitStack) -> None:
    """Decides once on a partition that another writer changed meanwhile."""
    put(stack, ConflictRounds, "__next__", _once(ConflictRounds.__next__))


def _once(following: Callable[[ConflictRounds], int]) -> Callable[[ConflictRounds], int]:
    def first(self: ConflictRounds) -> int:
        if self._begun:
            raise StopIteration
        return following(self)

    return first


@mutation
def wait_without_a_queue_position(stack: ExitStack) -> None:
    """Takes a daemon whose queue position is gone for the last in the queue of daemons."""
    predecessor = QueueMember.predecessor

    async def or_last(self: QueueMember) -> QueuePosition | None:
        try:
            return await predecessor(self)
        except PositionLost:
            return QueuePosition(str(self.position_path), None, 0, 0)

    put(stack, QueueMember, "predecessor", or_last)


@mutation
def parents_may_go(stack: ExitStack) -> None:
    """Ends no term for a deleted parent that the controller watches, so no term creates it again."""
    stack.enter_context(mock.patch("controller.kafka.term.term.PARENTS", ()))
