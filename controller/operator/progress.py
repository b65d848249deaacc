"""Measures the progress of reassign plans, and watches how long procedures have made none, and why.

A change of its record is progress of a procedure; of a plan that copies, every further byte is, too. Bytes are measured
beside the queue, at destinations alone: one query at a time, whose result stands for some seconds for all callers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from brokers.client import BrokerCallFailed
from brokers.loads import sizes_on
from controller.kafka.procedures import drain, elect, reassign, restart, throttle
from controller.kafka.term.term import Term
from state_machines.decisions.leader_election import ElectionType
from state_machines.decisions.plan_pace import Copied, MovePace, PlanPace, Sample, Standing, destinations, paces, total
from state_machines.decisions.plan_progress import ReassignPlan
from state_machines.model.types import TopicPartition
from state_machines.procedures.kernel import is_stuck
from state_machines.procedures.record import Record
from state_machines.procedures.states import State

FRESH_S: Final = 3.0
"""Time for which a measurement stands."""
WINDOW_S: Final = 12.0
"""Time over which rates are computed."""
FIRST_PAUSE_S: Final = 1.0
"""Pause between the first two measurements of a plan, without which there is no rate."""
REPORTS_S_MAX: Final = 5.0
"""Longest wait for the reports of one measurement."""
PLANS_MAX: Final = 4
"""Plans whose measurements are kept."""
LOOK_S: Final = 30.0
"""Pause between two measurements of the plans that copy."""
OPERATOR: Final = "operator"
"""It is paused, waits for an operator's next act, or is a throttle that stands until it is lifted."""
QUEUE: Final = "queue"
"""Another procedure has its locks."""
VAIN: Final = "vain"
"""One step was tried in vain ten times."""
OTHER: Final = "other"
"""Anything else, as a broker that is dead."""
CAUSES: Final = (OPERATOR, QUEUE, VAIN, OTHER)


class Measured(NamedTuple):
    """The progress of a plan and of each of its moves."""

    plan: ReassignPlan
    total: PlanPace
    moves: list[MovePace]


class PlanMeter:
    """Keeps the measurements of the last seconds, by term and plan."""

    def __init__(self) -> None:
        self._samples: dict[tuple[int, int], deque[Sample]] = {}
        self._measuring = asyncio.Lock()

    async def measured(self, term: Term, record: Record) -> Measured:
        """Returns the progress of a plan that runs; measures where the last measurement is old."""
        async with self._measuring:
            samples = self._of(term, record)
            old = not samples or _now_s() - samples[-1].at_s >= FRESH_S
            if old and await self._sample(term, record, samples) and len(samples) == 1:
                await asyncio.sleep(FIRST_PAUSE_S)
                await self._sample(term, record, samples)
        before = samples[0] if len(samples) > 1 else None
        return _computed(term, _present(term, record), samples[-1], before)

    def _of(self, term: Term, record: Record) -> deque[Sample]:
        key = term.claim.epoch, record.pid
        known = self._samples.pop(key, None)
        self._samples[key] = known if known is not None else deque()
        while len(self._samples) > PLANS_MAX:
            del self._samples[next(iter(self._samples))]
        return self._samples[key]

    async def _sample(self, term: Term, record: Record, samples: deque[Sample]) -> bool:
        """Adds a measurement; returns whether destinations were queried for it."""
        wanted = destinations(reassign.plan_of(_present(term, record)), term.cluster)
        logs: dict[tuple[TopicPartition, int], Copied] = {}
        unread: dict[int, str] = {}
        dial = term.controller.dial
        found = await sizes_on(dial, term.cluster.brokers, wanted, REPORTS_S_MAX) if wanted and dial else {}
        for broker, sizes in found.items():
            if isinstance(sizes, BrokerCallFailed):
                unread[broker] = str(sizes)
                continue
            for name, size in sizes.items():
                logs[name, broker] = Copied(size.size_bytes, size.offset_lag)
        now = Sample(_now_s(), logs, unread)
        copied = _computed(term, _present(term, record), now, None).total.copied_bytes
        samples.append(now._replace(copied=copied))
        while len(samples) > 2 and samples[1].at_s <= now.at_s - WINDOW_S:
            samples.popleft()
        return bool(found)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _present(term: Term, record: Record) -> Record:
    """Returns the record as it is by now."""
    engine = term.procedures.engine_or_none
    return (engine.records.get(record.pid) if engine is not None else None) or record


def _computed(term: Term, record: Record, now: Sample, before: Sample | None) -> Measured:
    plan, c = reassign.plan_of(record), term.controller
    missing = ""
    if plan.rate_bytes_per_s and plan.rate_in_force != plan.rate_bytes_per_s:
        missing = record.error or "its settings are being written"
    standing = Standing(c.pauses.in_force is not None, not record.locked, missing)
    each = paces(plan, term.cluster, now, before, standing)
    return Measured(plan, total(plan, each, now, before), each)


class Idle(NamedTuple):
    """A procedure without progress since ``for_ms``, and one of :data:`CAUSES`."""

    pid: int
    kind: str
    cause: str
    for_ms: int


class _Copied(NamedTuple):
    """The bytes of a plan at the latest look; ``changed_ms``: when they last changed, 0 before a second look."""

    pace: PlanPace
    changed_ms: int
    looks: int


class ProgressWatch:
    """Keeps the latest measurements of plans that copy."""

    def __init__(self) -> None:
        self._meter = PlanMeter()
        self._epoch = 0
        self._copied: dict[int, _Copied] = {}
        self._due_s = 0.0
        self._looking = False

    def refresh(self, term: Term, now_ms: int) -> None:
        """Begins a measurement where one is due."""
        now_s = asyncio.get_running_loop().time()
        if term.claim.epoch != self._epoch:
            self._epoch, self._copied, self._due_s = term.claim.epoch, {}, 0.0
        if self._looking or now_s < self._due_s:
            return
        self._due_s = now_s + LOOK_S
        plans = list(islice(_copying(term), PLANS_MAX))
        for gone in self._copied.keys() - {record.pid for record in plans}:
            del self._copied[gone]
        if plans:
            self._looking = True
            term.controller.spawn(self._look(term, plans, now_ms), at_end=self._looked)

    def _looked(self) -> None:
        self._looking = False

    async def _look(self, term: Term, plans: list[Record], now_ms: int) -> None:
        for record in plans:
            pace = (await self._meter.measured(term, record)).total
            if term.claim.epoch == self._epoch:
                self._copied[record.pid] = _next(self._copied.get(record.pid), pace, now_ms)

    def paces(self) -> list[PlanPace]:
        """Returns the latest measurements of the plans that copy."""
        return [copied.pace for copied in self._copied.values()]

    def idle(self, term: Term, now_ms: int) -> Iterator[Idle]:
        """Yields the procedures that have not ended, those left out that wait for their parts or are not run at all.

        A plan that copies is left out until its bytes were measured twice, which takes half a minute of a term.
        """
        engine = term.procedures.engine_or_none
        for record in engine.live() if engine is not None else ():
            if record.state is State.WAITING or (engine is not None and record.pid in engine.parked):
                continue
            copied = self._copied.get(record.pid)
            if (copied is None or copied.looks < 2) and _is_copying(term, record):
                continue
            last_ms = max(record.progress_ms, copied.changed_ms if copied is not None else 0)
            yield Idle(record.pid, record.kind, cause_of(term, record), max(0, now_ms - last_ms))


def _next(before: _Copied | None, pace: PlanPace, now_ms: int) -> _Copied:
    if before is None:
        return _Copied(pace, 0, 1)
    changed = pace.copied_bytes != before.pace.copied_bytes
    return _Copied(pace, now_ms if changed else before.changed_ms, before.looks + 1)


def _copying(term: Term) -> Iterator[Record]:
    engine = term.procedures.engine_or_none
    return (one for one in (engine.live() if engine is not None else ()) if _is_copying(term, one))


def _is_copying(term: Term, record: Record) -> bool:
    """Checks whether a running plan has moves under way whose destinations are live."""
    if record.kind != reassign.NAME or not record.locked:
        return False
    try:
        plan = reassign.plan_of(record)
    except msgspec.DecodeError:
        return False
    return any(broker in term.cluster.brokers for broker in destinations(plan, term.cluster))


def cause_of(term: Term, record: Record) -> str:
    """Returns why a procedure makes no progress, if it makes none."""
    if not record.locked and record.kind != throttle.NAME:
        return QUEUE
    try:
        if _waits_for_operator(term, record):
            return OPERATOR
    except msgspec.DecodeError:  # the record is shown as unusable elsewhere
        return OTHER
    return VAIN if is_stuck(record) else OTHER


def _waits_for_operator(term: Term, record: Record) -> bool:
    paused = term.controller.pauses.in_force is not None
    match record.kind:
        case reassign.NAME:
            return reassign.is_paused(record) or (paused and record.state is not State.FAILED)
        case drain.NAME:
            return paused and record.state is not State.FAILED
        case elect.NAME:
            return paused and elect.election_of(record).kind is ElectionType.PREFERRED
        case restart.NAME:
            return paused or bool(restart.restart_of(record).batch)
        case throttle.NAME:
            return not record.attempts and not throttle.order_of(record.data).lift
        case _:
            return False
