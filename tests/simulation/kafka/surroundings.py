"""Replaces, for one run, everything that a daemon takes from its machine: ids, clocks, the collector, logs."""

from __future__ import annotations

import gc
import logging
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from controller.kafka.term.claim_monitor import OUTRANKED
from controller.kafka.topics.topic_change import RENEWED
from state_machines.machines.draft import Draft
from state_machines.model.decision import Decision
from state_machines.model.types import NO_LEADER
from tests.kit.simulation.loop import deterministic_scopes
from tests.kit.simulation.seeds import Violation
from tests.simulation.kafka import faults
from tests.simulation.kafka.limits import limited
from tests.simulation.kafka.sizes import counted
from tests.simulation.kafka.transitions import illegal
from tests.simulation.kafka.unmerged import Witness

if TYPE_CHECKING:
    from tests.simulation.kafka.world import SimulatedKafka

_UNREACHED: Final = (
    faults.INTERIM,  # its controller sends changes to some of the brokers only
    faults.BROKER_CRASH,
    faults.BROKER_CUT,
    faults.BROKER_FROZEN,
    faults.BROKER_REFUSES,
    faults.BROKER_SLOW,
    faults.ZK_EXPIRED,
    faults.ZK_KEPT,
    faults.ZK_READ_ONLY,
    faults.ZK_RESTARTED,
)
_UNWRITTEN: Final = (
    faults.OPERATOR_DELETED,
    faults.OPERATOR_RECREATED,
    faults.OPERATOR_REWROTE,
    faults.ZK_EXPIRED,
    faults.ZK_KEPT,
    faults.ZK_READ_ONLY,
    faults.ZK_REPLY_LOST,
    faults.ZK_REQUEST_LOST,
    faults.ZK_RESTARTED,
)


def explained(world: SimulatedKafka, text: str) -> bool:
    """Returns whether an event of this run explains a logged error."""
    counts = world.counts
    if "has seen a controller epoch above ours" in text:
        successors = counts[faults.INTERIM] or counts[faults.DAEMON_TWO]
        return bool(world.made_up_epochs or counts[faults.BROKER_FOREIGN] or successors)
    if text == OUTRANKED:
        return world.invariants.outranked()
    if "could not be repaired" in text or "could not be rewritten" in text:
        return any(counts[fault] for fault in _UNWRITTEN)
    if "created it again in the moment before" in text:
        return any(text.startswith(f"{topic}: ") for topic in world.invariants.history.overwritten)
    if "the cluster is controlled without them" in text:
        return any(counts[fault] for fault in _UNWRITTEN)
    if "/state cannot be used" in text:
        return bool(counts[faults.OPERATOR_SCRIBBLED])
    if "was deleted; the next term" in text or "cannot be used" in text or "cannot be understood" in text:
        return any(path in text for path in world.interfered)
    if "no live broker knows it" in text or "that may know it do not respond" in text:
        spoilt = {topic for topic, _ in world.invariants.history.spoilt}  # a topic that was new is taken for its former
        return bool(counts[faults.OPERATOR_REWROTE]) or any(text.startswith(f"{topic}: ") for topic in spoilt)
    if "hand-back undone" in text:
        return bool(counts[faults.DAEMON_HANDBACK]) and any(counts[fault] for fault in _UNREACHED)
    return "name a daemon as a replica and no broker is free" in text


@contextmanager
def surroundings(world: SimulatedKafka) -> Iterator[None]:
    """Replaces the daemons' surroundings for the time of a run."""

    class WatchedDraft(Draft):
        """Checks every transition of a decision against a table of its own (I6).

        I4: no replica is elected whose log directory is known to have failed.
        """

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.trace = []

        def finish(self) -> Decision:
            wrong = illegal(self.trace or ())
            if wrong is not None:
                world.unexpected(f"I6: illegal transition {wrong}", None)
            decision = super().finish()
            for change in decision.writes:
                elected = change.after.leader if change.after.leader != change.before.leader else NO_LEADER
                if elected in self.cluster.failed_dirs.get(change.entity, ()):
                    name = self.cluster.name(change.entity)
                    what = f"{name} is to be led by {elected}, whose log directory failed"
                    world.violated(Violation("I4", what))
            return decision

    collector = SimpleNamespace(collect=int, freeze=int, unfreeze=int)

    def wall_s() -> float:
        return 1.7e9 + world.loop.now_s + world.wall_offset_s

    clock = SimpleNamespace(time=wall_s, time_ns=lambda: int(1e9 * wall_s()))
    with ExitStack() as stack:
        for target, name, value in (
            ("controller.kafka.term.failover", "gc", collector),
            ("controller.kafka.topics.create_topics", "random", world.chance),
            ("controller.role.claim", "time", clock),
            ("controller.role.queue", "time", clock),
            ("controller.process.clock", "time_ns", clock.time_ns),
            ("controller.procedures.turns", "time", SimpleNamespace(monotonic=lambda: world.loop.now_s)),
            ("controller.role.own_znodes", "started_ticks", world.started_ticks),
            ("controller.kafka.path.controller", "Draft", WatchedDraft),
        ):
            stack.enter_context(mock.patch(f"{target}.{name}", value))
        if world.unmerged is not None:
            stack.enter_context(mock.patch("controller.kafka.term.term.Channels", partial(Witness, world.unmerged)))
        stack.enter_context(mock.patch("uuid.uuid4", new=partial(_uuid, world)))
        stack.enter_context(deterministic_scopes())
        stack.enter_context(limited(world.plan.limits))
        stack.enter_context(counted(world))
        stack.enter_context(_logs(world))
        collects = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collects:
                gc.enable()


def _uuid(world: SimulatedKafka) -> uuid.UUID:
    return uuid.UUID(bytes=world.chance.randbytes(16))


@contextmanager
def _logs(world: SimulatedKafka) -> Iterator[None]:
    """Makes violations of errors with a traceback and of terms that end by an error; traces all other lines."""
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
    def __init__(self, world: SimulatedKafka) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """Judges one record."""
        text = record.getMessage()
        if self._world.lines is not None:
            self._world.lines.append(f"{self._world.loop.now_s:.6f} . {record.name} {text}")
        if RENEWED in text:
            self._world.happened(faults.SIZE_RENEWED)
        if text == OUTRANKED and not explained(self._world, text):
            self._world.violated(Violation("I19", "a term ends, although most brokers obey it"))
        elif record.exc_info and record.exc_info[1] is not None:
            self._world.unexpected(text, record.exc_info[1])
        elif (record.levelno >= logging.ERROR or _ended_by_error(text)) and not explained(self._world, text):
            self._world.unexpected(text, None)


def _ended_by_error(text: str) -> bool:
    return text.startswith("resigned") and "error:" in text
