"""Looks at the cluster beside the event queue, for the throttle of the plan that runs.

:class:`RatePacer` keeps its rate between its bounds; :class:`CatchUps` finds replicas that leave its lists shortly
before they catch up. Both know what they saw in the memory of this daemon alone: the next one looks again. The rate and
its cause are in the plan's record before brokers get them, so the next daemon goes on with them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Final

from msgspec.structs import replace

from brokers.client import BrokerCallFailed
from brokers.loads import sizes_on
from brokers.queries import Dial
from controller.kafka.path.controller import Controller
from controller.process.wording import counted
from state_machines.decisions.plan_progress import ReassignPlan
from state_machines.decisions.throttling import Copy, Looks, Pressure, RateBounds, next_rate, pressure
from state_machines.model.cluster import Cluster
from state_machines.model.types import TopicPartition

log = logging.getLogger("regent.procedures")

JUDGEMENT_S: Final = 5.0
"""Pause between two judgements."""
JUDGEMENT_REST_TIMES: Final = 20
"""The pause as a multiple of a judgement's duration, where that is longer: a twentieth of the time is spent on it."""
TURN_ROWS: Final = 10_000
"""Rows that are judged between two turns of the loop: some milliseconds."""
FIRST_LOOK_S: Final = 0.25
"""Pause before the second look at a plan's copies: what a fetch brings is known from then on."""
LOOK_S: Final = 1.0
"""Pause between two looks at them."""
REST_TIMES: Final = 4
"""The pause as a multiple of a look's duration, where that is longer."""
REPORT_S_MAX: Final = 5.0
"""Longest wait for the report of one broker."""
COPIES_MAX: Final = 5_000
"""Replicas of one look; those beyond are throttled until they are in the ISR."""

Replica = tuple[TopicPartition, int]


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
            self._found, self._due_s = found, now_s + max(JUDGEMENT_S, JUDGEMENT_REST_TIMES * (now_s - began_s))
            wake(pid)


class CatchUps:
    """Holds the replicas that have nearly caught up, for the plan that runs; one runs at a time."""

    def __init__(self) -> None:
        self._pid = 0
        self._rows: Collection[int] = ()
        self._looking: object | None = None
        self._looks = Looks()
        self._near: dict[Replica, int] = {}
        self._warned: set[int] = set()

    def near(self, c: Controller, pid: int, rows: Collection[int], wake: Callable[[int], None]) -> Collection[Replica]:
        """Returns the replicas that need no throttle any more; looks on as long as one of ``rows`` has others.

        ``rows``: partitions whose moves are under way. ``wake`` is called with the pid where a look has found some.
        """
        if pid != self._pid:
            self._pid, self._looks, self._near, self._warned = pid, Looks(), {}, set()
        self._rows = rows
        self._forget(c.cluster)
        if c.dial is not None and self._looking is None and any(self._throttled(c.cluster)):
            self._looking = looking = object()
            c.spawn(self._look_on(c, c.dial, wake, looking), at_end=partial(self._ended, looking))
        return self._near.keys()

    def stop(self) -> None:
        """Ends the looks: nothing is throttled."""
        self._rows = ()

    def _ended(self, looking: object) -> None:
        """Forgets the looks that end, also before they began; later ones go on."""
        if self._looking is looking:
            self._looking = None

    def _forget(self, cluster: Cluster) -> None:
        """Drops replicas that are in the ISR, or that copy no more, and those whose broker died since."""
        self._near = {
            (name, broker): epoch
            for (name, broker), epoch in self._near.items()
            if _is_copied(cluster, name, broker) and _epoch(cluster, broker) == epoch
        }

    def _throttled(self, cluster: Cluster) -> Iterator[Copy]:
        return (one for one in _copies(cluster, self._rows) if (one.name, one.broker) not in self._near)

    async def _look_on(self, c: Controller, dial: Dial, wake: Callable[[int], None], looking: object) -> None:
        pause_s = FIRST_LOOK_S
        while copies := list(islice(self._throttled(c.cluster), COPIES_MAX)):
            began_s, pid = asyncio.get_running_loop().time(), self._pid
            epochs = {one.broker: _epoch(c.cluster, one.broker) for one in copies}
            found = await self._sizes(c, dial, copies)
            took_s = asyncio.get_running_loop().time() - began_s
            if pid == self._pid:
                self._enter(copies, epochs, found, wake)
            await asyncio.sleep(max(pause_s, REST_TIMES * took_s))
            pause_s = LOOK_S
        self._ended(looking)  # at once: a plan may begin its next looks before this task is over

    def _enter(
        self,
        copies: Collection[Copy],
        epochs: Mapping[int, int],
        found: Mapping[Replica, int],
        wake: Callable[[int], None],
    ) -> None:
        """Enters a look. ``epochs``: of the destinations before it."""
        self._looks = self._looks.plus(copies, found)
        if near := self._looks.near(copies):
            self._near |= {(one.name, one.broker): epochs[one.broker] for one in near}
            count = counted(len(near), "replica")
            log.info("pid=%d reassign: its throttle lets %s go, for they have nearly caught up", self._pid, count)
            wake(self._pid)

    async def _sizes(self, c: Controller, dial: Dial, copies: Iterable[Copy]) -> dict[Replica, int]:
        """Reads the sizes of the copies and of their leaders' logs; those of a broker that fails are left out.

        A copy that its broker has not created yet has 0 bytes.
        """
        wanted: dict[int, set[TopicPartition]] = {}
        added: dict[int, set[TopicPartition]] = {}
        for name, broker, leader in copies:
            added.setdefault(broker, set()).add(name)
            for one in (broker, leader):
                wanted.setdefault(one, set()).add(name)
        found: dict[Replica, int] = {}
        for broker, sizes in (await sizes_on(dial, c.cluster.brokers, wanted, REPORT_S_MAX)).items():
            if isinstance(sizes, BrokerCallFailed):
                self._warn(broker, sizes)
                continue
            found |= {(name, broker): 0 for name in added.get(broker, ())}
            found |= {(name, broker): size.size_bytes for name, size in sizes.items()}
        return found

    def _warn(self, broker: int, error: BrokerCallFailed) -> None:
        """Writes a line of a broker that sends no sizes, once in a plan."""
        if broker not in self._warned:
            self._warned.add(broker)
            log.warning(
                "pid=%d reassign: broker %d sends no sizes of its logs, so replicas stay throttled until they are in "
                "the ISR, and producers may wait for them: see that it responds, and that this daemon's user may "
                "describe the cluster (%s)",
                self._pid,
                broker,
                error,
            )


def _epoch(cluster: Cluster, broker: int) -> int:
    known = cluster.brokers.get(broker)
    return known.epoch if known is not None else -1


def _is_copied(cluster: Cluster, name: TopicPartition, broker: int) -> bool:
    """Checks whether a reassignment adds the replica, and it is not in the ISR."""
    row = cluster.find(*name)
    written = cluster.reassigning.get(row) if row is not None else None
    return (
        row is not None
        and written is not None
        and broker in written.kept.adding
        and broker not in cluster.rows[row].isr
    )


def _copies(cluster: Cluster, rows: Iterable[int]) -> Iterator[Copy]:
    """Yields the replicas that moves of these rows add, and that are not in the ISR."""
    for row in rows:
        if (written := cluster.reassigning.get(row)) is not None:
            now = cluster.rows[row]
            for broker in written.kept.adding:
                if broker not in now.isr and broker in cluster.brokers:
                    yield Copy(cluster.name(row), broker, now.leader)
