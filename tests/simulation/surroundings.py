"""What a daemon takes from the machine it runs on, replaced for one run: ids, clocks, the collector, logs."""

from __future__ import annotations

import gc
import logging
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from state_machines.decision import Decision
from state_machines.draft import Draft
from tests.simulation.loop import deterministic_scopes
from tests.simulation.transitions import illegal
from tests.simulation.unmerged import Witness

if TYPE_CHECKING:
    from tests.simulation.world import World

EXPECTED = (
    "has seen a controller epoch above ours",
    "brokers have seen a higher controller epoch",
    "name a daemon as a replica and no broker is free",
    "could not be mended",
    "hand-back undone",
)
"""Errors that operators are told of and that the faults here explain."""


@contextmanager
def surroundings(world: World) -> Iterator[None]:
    """For the time of a run."""

    class WatchedDraft(Draft):
        """I6: every transition that a decision makes is held against a table of its own."""

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.trace = []

        def finish(self) -> Decision:
            wrong = illegal(self.trace or ())
            if wrong is not None:
                world.unexpected(f"I6: illegal transition {wrong}", None)
            return super().finish()

    collector = SimpleNamespace(collect=int, freeze=int, unfreeze=int)
    clock = SimpleNamespace(time=lambda: 1.7e9 + world.loop.now_s + world.wall_offset_s)
    with ExitStack() as stack:
        for target, name, value in (
            ("controller.handlers.failover", "gc", collector),
            ("controller.office", "time", clock),
            ("controller.own_znodes", "started_ticks", world.started_ticks),
            ("controller.controller", "Draft", WatchedDraft),
        ):
            stack.enter_context(mock.patch(f"{target}.{name}", value))
        if world.unmerged is not None:
            stack.enter_context(mock.patch("controller.reign.Channels", partial(Witness, world.unmerged)))
        stack.enter_context(mock.patch("uuid.uuid4", new=partial(_uuid, world)))
        stack.enter_context(deterministic_scopes())
        stack.enter_context(_logs(world))
        collects = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collects:
                gc.enable()


def _uuid(world: World) -> uuid.UUID:
    return uuid.UUID(bytes=world.chance.randbytes(16))


@contextmanager
def _logs(world: World) -> Iterator[None]:
    """Errors with a traceback, and terms that end by an error, are violations; the rest is for the trace."""
    handler = _Handler(world)
    level = logging.DEBUG if world.lines is not None else logging.WARNING
    loggers = [logging.getLogger(name) for name in ("regent", "asyncio")]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.setLevel(level)
        logger.propagate = False
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger, (old, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(old)
            logger.propagate = propagate


class _Handler(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """One record."""
        text = record.getMessage()
        if self._world.lines is not None:
            self._world.lines.append(f"{self._world.loop.now_s:.6f} . {record.name} {text}")
        if record.exc_info and record.exc_info[1] is not None:
            self._world.unexpected(text, record.exc_info[1])
        elif (text.startswith("resigned") and "error:" in text) or (
            record.levelno >= logging.ERROR and not any(known in text for known in EXPECTED)
        ):
            self._world.unexpected(text, None)
