"""Measures the progress of reassign plans for operators, beside the event queue.

A destination gets one query at a time, and what it sent stands for some seconds: many callers cost no more than one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple

from brokers.client import BrokerCallFailed
from brokers.loads import sizes_on
from controller.kafka.kinds import reassign
from controller.kafka.term.term import Term
from state_machines.decisions.plan_pace import (
    Copied,
    MovePace,
    PlanPace,
    Sample,
    Standing,
    destinations,
    paces,
    total,
)
from state_machines.decisions.plan_progress import ReassignPlan
from state_machines.model.types import TopicPartition
from state_machines.procedures.record import Record

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
