"""Runs ``regent run --shadow``: follows a cluster that another controller controls, and compares.

Its only input is ZooKeeper, through a port that refuses every write; it has no queue position and no connection to a
broker. It reads registrations, role, topics and state znodes after each event and every ``poll_s``. While a partition
awaits a counterpart, or a live replica is outside of its ISR, its state znode is read again at short intervals, so that
few changes pass unseen.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

import anyio

from controller.kafka.metrics.values import Counters
from controller.kafka.shadow.read_only import ReadOnly
from controller.kafka.shadow.reading import Reader, RoleReading
from controller.kafka.shadow.report import SHOWN_MAX, Report, ReportKeeper, Statistics
from controller.kafka.shadow.timeline import Timeline
from controller.kafka.shadow.tracker import Tracker
from metadata_store import paths
from metadata_store.errors import NotConnected, SessionLost
from metadata_store.port import ConnectionState, WatchEvent, ZooKeeper
from state_machines.model.types import NO_LEADER

log = logging.getLogger("regent.shadow")

WAIT_S: Final = 30.0
"""Longest wait of a decision for its counterpart."""

AGAIN_S_MIN: Final = 0.02
AGAIN_S_MAX: Final = 0.5
"""Pauses between two readings while counterparts are awaited; they double while the state does not change."""

CATCHING_UP_S: Final = 0.05
"""Pause between two readings while live replicas are outside of their ISR."""

LATE_S: Final = 1.0
"""Longest time from an event to the reading of the registrations; later, several may have passed."""

LOAD_MAX: Final = 0.2
"""Share of the time that repeated readings may take."""

_PARENTS: Final = (paths.BROKER_IDS, paths.TOPICS, paths.ISR_CHANGES)
_ROLE: Final = (paths.CONTROLLER, paths.CONTROLLER_EPOCH)


class Shadow:
    """Follows a cluster in ``await run(zk)``; :meth:`report` works at any time.

    ``wait_s``: wait of a decision for its counterpart until that counts as missing. ``file`` keeps the report for the
    next process.
    """

    def __init__(
        self, *, poll_s: float, wait_s: float = WAIT_S, counters: Counters | None = None, file: Path | None = None
    ) -> None:
        self.statistics = Statistics(counters)
        self.file = file
        self.tracker = Tracker(self.statistics, wait_s)
        self.timeline = Timeline(self.tracker)
        self.following = asyncio.Event()
        """Set from the first complete reading on, cleared when it starts over."""
        self._poll_s = poll_s
        self._wake = asyncio.Event()
        self._fired: set[str] = set()
        self._fired_s = 0.0
        self._interrupted = False
        self._catching_up: list[int] = []
        self._keeper = ReportKeeper(file, self.report)
        self._zk: ZooKeeper
        self._reader: Reader
        self._role_reading: RoleReading

    async def run(self, zk: ZooKeeper) -> None:
        """Follows the cluster on a connected session until cancelled; raises ``SessionLost`` when that is over.

        With another session it keeps its counts, but starts over with the state that it then reads.
        """
        self._zk = ReadOnly(zk)
        self._reader = Reader(self._zk)
        self._zk.on_watch, self._zk.on_state = self._watched, self._state_changed
        await self._keeper.resume(self.statistics)
        try:
            while True:
                try:
                    await self._follow()
                except SessionLost:
                    raise
                except NotConnected:
                    log.warning("the connection to ZooKeeper is suspended: the shadow starts over when it is back")
                    await self._reconnected()
        finally:
            self._zk.on_watch = self._zk.on_state = None
            self.following.clear()
            with anyio.CancelScope(shield=True):
                await self._keeper.save()
            self._log_report()

    def report(self) -> Report:
        """Returns all counts so far."""
        statistics = self.statistics
        return Report(
            compared={str(kind): count for kind, count in statistics.compared.items()},
            differing=statistics.differing,
            differences=list(statistics.differences),
            uncomparable=dict(statistics.uncomparable),
            not_ours=dict(statistics.not_ours),
            unseen=statistics.unseen,
            isr_changes=statistics.isr_changes,
            waiting=len(self.tracker.waiting),
            events=dict(statistics.events),
            partitions=sum(1 for _ in self._named()),
            controller=self.timeline.holder,
            since_ms=statistics.since_ms,
        )

    # -- the session

    def _watched(self, event: WatchEvent) -> None:
        if not self._fired:
            self._fired_s = time.monotonic()
        self._fired.add(event.path)
        self._wake.set()

    def _state_changed(self, state: ConnectionState) -> None:
        self._interrupted |= state is not ConnectionState.CONNECTED
        self._wake.set()

    async def _reconnected(self) -> None:
        while self._zk.state is not ConnectionState.CONNECTED:
            if self._zk.state is ConnectionState.LOST:
                raise SessionLost("the ZooKeeper session is over")
            self._wake.clear()
            with anyio.move_on_after(1.0):
                await self._wake.wait()

    async def _follow(self) -> None:
        """Reads everything, then repeatedly the possible changes; raises NotConnected after an interruption."""
        self._interrupted = False
        self.following.clear()
        await self._begin()
        self.following.set()
        next_full_s = time.monotonic() + self._poll_s
        again_s = took_s = 0.0
        while True:
            pause_s = max(self._pause(again_s), took_s / LOAD_MAX)
            woken = await self._woken(min(next_full_s - time.monotonic(), pause_s))
            if self._interrupted:
                raise NotConnected("the connection was lost: watches are gone")
            before, began_s = self._progress(), time.monotonic()
            full = woken or began_s >= next_full_s
            await self._read(full)
            await self._keeper.keep(time.monotonic())
            now_s = time.monotonic()
            took_s = now_s - began_s
            next_full_s = now_s + self._poll_s if full else next_full_s
            again_s = max(2 * again_s, AGAIN_S_MIN) if before == self._progress() else 0.0

    def _pause(self, again_s: float) -> float:
        """Returns the pause until the next reading, which a watch may shorten."""
        pause_s = min(max(again_s, AGAIN_S_MIN), AGAIN_S_MAX) if self.tracker.waiting else self._poll_s
        return min(pause_s, CATCHING_UP_S) if self._catching_up else pause_s

    async def _woken(self, within_s: float) -> bool:
        """Waits for a watch; returns False where none fired in time."""
        with anyio.move_on_after(max(0.0, within_s)):
            await self._wake.wait()
        woken = self._wake.is_set()
        self._wake.clear()
        return woken

    def _progress(self) -> tuple[int, ...]:
        statistics = self.statistics
        return statistics.compared.total(), statistics.differing, statistics.isr_changes, statistics.events.total()

    # -- reading

    async def _begin(self) -> None:
        """Adopts the present state and arms every watch."""
        since = self._zk.last_zxid
        self._fired.clear()
        await self._zk.sync("/")
        self._role_reading = role_seen = await self._reader.role_seen(None)
        names = await self._reader.names(paths.TOPICS)
        topics = await self._reader.topics(names or ())
        self.timeline.begin(role_seen, topics, time.monotonic())
        await self._arm([*_PARENTS, *_ROLE, *(paths.topic(topic.name) for topic in topics)], since)
        states = await self._reader.states(list(self._named()))
        for _ in self.timeline.take(role_seen, states, time.monotonic()):
            await asyncio.sleep(0)
        self._catching_up = self._outside()
        log.info(
            "shadow of controller %s at epoch %d: %d brokers, %d topics, %d partitions; nothing is written or sent",
            role_seen.holder,
            role_seen.epoch,
            len(role_seen.brokers),
            len(topics),
            len(self.tracker.model.rows),
        )

    async def _read(self, full: bool) -> None:
        """Reads everything, or only waiting partitions and those whose ISR a replica may join."""
        if full or self.tracker.waiting:
            since = self._zk.last_zxid
            fired, self._fired = self._fired, set()
            await self._zk.sync("/")
            self._role_reading = await self._reader.role_seen(self.timeline.epoch)
            late = bool(fired) and time.monotonic() - self._fired_s > LATE_S
            deleting = await self._read_topics(fired, since) if full else ()
            await self._arm(fired, since)
        else:
            late, deleting = False, ()
        wanted = None if full else {*self.tracker.waiting, *self._catching_up}
        states = await self._reader.states(list(self._named(wanted)))
        now = time.monotonic()
        for _ in self.timeline.take(self._role_reading, states, now, full=full, deleting=deleting, late=late):
            await asyncio.sleep(0)
        self._catching_up = self._outside() if full else [i for i in self._catching_up if self._is_outside(i)]
        self._log_news()

    async def _read_topics(self, fired: Collection[str], since: int) -> Collection[str]:
        """Reads new, vanished and rewritten topics; returns the names of those that are being deleted."""
        found = await self._reader.names(paths.TOPICS) or frozenset()
        known = self.tracker.model.topic_index.keys()
        for name in sorted(known - found):
            self.timeline.topic_gone(name)
        new = found - known
        rewritten = {name for name in known & found if paths.topic(name) in fired}
        for topic in await self._reader.topics(new | rewritten):
            self.timeline.topic(topic, since)
        await self._zk.watch(data=[paths.topic(name) for name in sorted(new)], since_zxid=since)
        return await self._reader.names(paths.DELETE_TOPICS) or ()

    async def _arm(self, fired: Iterable[str], since: int) -> None:
        """Arms fired watches again; watches a missing znode for its creation."""
        data: list[str] = []
        absent: list[str] = []
        children: list[str] = []
        for path in sorted(fired):
            if path in _PARENTS or path in _ROLE:
                there = await self._zk.exists(path) is not None
                (absent if not there else children if path in _PARENTS else data).append(path)
            elif path.rpartition("/")[2] in self.tracker.model.topic_index:
                data.append(path)
        await self._zk.watch(data=data, exists=absent, children=children, since_zxid=since)

    def _named(self, wanted: Iterable[int] | None = None) -> Iterator[tuple[int, str, int]]:
        """Yields rows of present topics with topic and partition, ``wanted`` limits them."""
        model = self.tracker.model
        if wanted is None:
            wanted = (i for t in model.topic_index.values() for i in model.topics[t].rows)
        for i in wanted:
            name = model.name(i)
            if model.topic_index.get(name.topic) == model.rows[i].topic:
                yield i, name.topic, name.partition

    # -- replicas that may join an ISR

    def _outside(self) -> list[int]:
        return [i for i, _, _ in self._named() if self._is_outside(i)]

    def _is_outside(self, i: int) -> bool:
        """Returns whether a live replica is outside of the ISR and a leader could add it."""
        row, live = self.tracker.model.rows[i], self.tracker.model.live
        return row.leader != NO_LEADER and any(r in live and r not in row.isr for r in row.assignment.replicas)

    # -- logs

    def _log_news(self) -> None:
        """Logs a line for each difference, at most ``SHOWN_MAX`` of one reading."""
        news = self.statistics.news()
        for difference in news[:SHOWN_MAX]:
            log.warning("difference from Kafka's controller at %s", difference)
        if len(news) > SHOWN_MAX:
            log.warning("more differences at the same time, %d in all: see the report", self.statistics.differing)

    def _log_report(self) -> None:
        for line in self.report().lines():
            log.info("%s", line)
