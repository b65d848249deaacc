"""Looks at the replicas that a throttled plan copies, so that its lists let them go shortly before they catch up.

A task beside the event queue queries the leaders and destinations of moves under way. The sizes are in the memory of
this daemon alone: the next one queries again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Final

from brokers.client import BrokerCallFailed
from brokers.queries import Dial
from brokers.replica_sizes import sizes_on
from controller.kafka.path.controller import Controller
from controller.process.wording import counted
from state_machines.decisions.plan_catch_up import Copy, Looks
from state_machines.model.cluster import Cluster
from state_machines.model.types import TopicPartition

log = logging.getLogger("regent.procedures")

FIRST_LOOK_S: Final = 0.25
"""Pause before the second look of a plan: what a fetch brings is known from then on."""
LOOK_S: Final = 1.0
"""Pause between two looks."""
REST_TIMES: Final = 4
"""The pause as a multiple of a look's duration, where that is longer."""
REPORT_S_MAX: Final = 5.0
"""Longest wait for the report of one broker."""
COPIES_MAX: Final = 5_000
"""Replicas of one look; those beyond are throttled until they are in the ISR."""

Replica = tuple[TopicPartition, int]


class CatchUps:
    """Holds the replicas that have nearly caught up, for the plan that runs; one runs at a time."""

    def __init__(self) -> None:
        self._pid = 0
        self._rows: Collection[int] = ()
        self._looking: object | None = None
        self._looks = Looks()
        self._near: dict[Replica, int] = {}
        self._told: set[int] = set()

    def near(self, c: Controller, pid: int, rows: Collection[int], wake: Callable[[int], None]) -> Collection[Replica]:
        """Returns the replicas that need no throttle any more; looks on as long as one of ``rows`` has others.

        ``rows``: partitions whose moves are under way. ``wake`` is called with the pid where a look has found some.
        """
        if pid != self._pid:
            self._pid, self._looks, self._near, self._told = pid, Looks(), {}, set()
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
                self._tell(broker, sizes)
                continue
            found |= {(name, broker): 0 for name in added.get(broker, ())}
            found |= {(name, broker): size.size_bytes for name, size in sizes.items()}
        return found

    def _tell(self, broker: int, error: BrokerCallFailed) -> None:
        """Writes a line of a broker that sends no sizes, once in a plan."""
        if broker not in self._told:
            self._told.add(broker)
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
