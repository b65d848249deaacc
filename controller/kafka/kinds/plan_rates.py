"""Keeps the throttle of a plan between its bounds: judges the cluster beside the queue, in turns, and decides by that.

A judgement is of this daemon's memory alone; the rate and its cause are in the plan's record before brokers get them,
so the next daemon goes on with them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from controller.kafka.path.controller import Controller
from state_machines.decisions.plan_progress import ReassignPlan
from state_machines.decisions.plan_rate import Pressure, RateBounds, next_rate, pressure

log = logging.getLogger("regent.procedures")

LOOK_S: Final = 5.0
"""Pause between two judgements."""
REST_TIMES: Final = 20
"""The pause as a multiple of a judgement's duration, where that is longer: a twentieth of the time is spent on it."""
TURN_ROWS: Final = 10_000
"""Rows that are judged between two turns of the loop: some milliseconds."""


class RatePacer:
    """Holds the latest judgement for the plan that runs; one runs at a time."""

    def __init__(self) -> None:
        self._pid = 0
        self._due_s = 0.0
        self._judging = False
        self._found: Pressure | None = None
        self._decided: tuple[int, RateBounds] | None = None

    def paced(
        self, c: Controller, pid: int, plan: ReassignPlan, now_ms: int, wake: Callable[[int], None]
    ) -> ReassignPlan:
        """Returns the plan with the rate that the latest judgement calls for, and begins another one where it is due.

        The same plan is returned where nothing changes, and where it has no bounds. ``wake`` is called with the pid
        once a judgement is there.
        """
        bounds = plan.bounds
        if bounds is None or plan.held:
            return plan
        if pid != self._pid:
            self._pid, self._due_s, self._found, self._decided = pid, 0.0, None, None
        self._say(plan)
        now_s = asyncio.get_running_loop().time()
        if self._found is None:
            if not self._judging and now_s >= self._due_s:
                self._judging = True
                c.spawn(self._judge(c, pid, wake), at_end=self._judged)
            return plan
        found, self._found = self._found, None
        rate, now = next_rate(plan.rate_bytes_per_s, bounds, found, now_ms)
        if rate != plan.rate_bytes_per_s:
            self._decided = plan.rate_bytes_per_s, now
        return plan if now is bounds else replace(plan, rate_bytes_per_s=rate, bounds=now)

    def _say(self, plan: ReassignPlan) -> None:
        """Writes a line of the latest change of the rate, once the plan's record has it."""
        if self._decided is not None and self._decided[1] == plan.bounds:
            before, rate = self._decided[0], plan.rate_bytes_per_s
            log.info("pid=%d reassign: throttle %d -> %d bytes/s, %s", self._pid, before, rate, plan.bounds.why)
        self._decided = None

    def _judged(self) -> None:
        self._judging = False

    async def _judge(self, c: Controller, pid: int, wake: Callable[[int], None]) -> None:
        began_s = asyncio.get_running_loop().time()
        cluster, min_isr, found = c.cluster, c.cluster.min_isr, Pressure()

        def least(topic: int) -> int | None:
            return min_isr.of(cluster.topics[topic].name)

        for start in range(0, len(cluster.rows), TURN_ROWS):
            found = found.plus(pressure(cluster, range(start, min(start + TURN_ROWS, len(cluster.rows))), least))
            await asyncio.sleep(0)
        now_s = asyncio.get_running_loop().time()
        if pid == self._pid:
            self._found, self._due_s = found, now_s + max(LOOK_S, REST_TIMES * (now_s - began_s))
            wake(pid)
