"""Ends a term in good order: its queue is worked off, and brokers acknowledge what they were sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import anyio

from brokers.listener.controller_listener import ControllerListener
from controller.kafka.path.events import Event, EventKind
from controller.kafka.term.term import Term
from controller.process.wording import named


async def drain(listener: ControllerListener, term: Term, within_s: float, note: Callable[[str], None]) -> None:
    """Refuses brokers' calls, handles the events that are queued, and waits for brokers; each step for ``within_s``."""
    listener.resign()
    settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    term.queue.post(Event(EventKind.SETTLED, settled, key=("settled", id(settled)), preempt=lambda: _cancel(settled)))
    with anyio.move_on_after(within_s):
        await asyncio.wait({settled})
    behind = await term.channels.quiesced(within_s)
    if behind:
        note(f"drained; broker {named(sorted(behind))} has not acknowledged everything, its next controller repeats it")
    else:
        note("drained: every broker acknowledged everything")


def _cancel(waiting: asyncio.Future[None]) -> None:
    waiting.cancel()
