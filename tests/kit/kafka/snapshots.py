"""Terms with a model and no ZooKeeper, for snapshots, and the files that they leave."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from configs.journal_section import SnapshotsSettings
from controller.kafka.journal.term_journal import KafkaJournal
from controller.kafka.metrics.values import Counters
from controller.kafka.snapshots.keeper import Attempt, SnapshotKeeper
from controller.kafka.term.term import Term
from state_machines.journal.snapshot import Header, Line, PartitionsLine, Trailer
from state_machines.model.cluster import Cluster
from state_machines.model.min_isr import MinIsr
from state_machines.model.types import Assignment, Broker, Leadership, TopicAssignment
from tests.kit.journals import DAEMON, Book

SESSION_MS = 9_000


def model(topics: int = 3, partitions: int = 4, brokers: int = 3, epoch: int = 5) -> Cluster:
    """Returns a model whose partitions are led by their first replicas; the ids of brokers begin with 1."""
    cluster = Cluster(epoch)
    cluster.observe_brokers({b: Broker(b, 100 + b, (), f"rack{b % 2}") for b in range(1, brokers + 1)})
    for topic in range(topics):
        add_topic(cluster, f"t{topic:06d}", partitions, brokers)
    return cluster


def add_topic(cluster: Cluster, name: str, partitions: int, brokers: int = 3) -> None:
    """Adds a topic, or partitions to one."""
    width = min(3, brokers)
    placed = {p: Assignment(tuple((p + i) % brokers + 1 for i in range(width))) for p in range(partitions)}
    topic_id = (len(cluster.topics) + 1).to_bytes(16, "big")
    rows = cluster.observe_topic(TopicAssignment(name, topic_id, placed, 0, 10 + len(cluster.topics)))
    found = [Leadership(r[0], 2, r, cluster.epoch, 7) for i in rows if (r := cluster.rows[i].assignment.replicas)]
    cluster.load_leadership(rows, found)


class TermDouble:
    """What a snapshot uses of a term."""

    def __init__(self, cluster: Cluster, book: Book | None = None) -> None:
        self.cluster = cluster
        self.book = book or Book()
        self.gate = SimpleNamespace(why_ended=None)
        self.idle = asyncio.Event()
        self.idle.set()
        self.channels = SimpleNamespace(quiet=True)
        self.stands_still = False
        self.settled = asyncio.Event()
        self.settled.set()
        adoption = SimpleNamespace(session_ms=lambda _: SESSION_MS, settled=self.settled)
        journal: KafkaJournal = self.book.term(DAEMON, cluster.epoch, KafkaJournal)
        journal.of_cluster("c")
        self.controller = SimpleNamespace(journal=journal, adoption=adoption)
        cluster.observe_min_isr(MinIsr(1, {"t000001": 2}))

    def as_term(self) -> Term:
        return cast("Term", self)


class Desk:
    """A keeper of snapshots in a folder; ``term`` is the present one."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.term: TermDouble | None = None
        self.counters = Counters()
        self.later_s = 0.0
        """Seconds that the keeper's clock is ahead."""
        self.keeper = SnapshotKeeper(
            lambda: self.term.as_term() if self.term is not None else None,
            folder,
            SnapshotsSettings(**settings),
            self.counters,
            DAEMON,
            lambda: time.monotonic() + self.later_s,
        )

    async def ended(self, attempt: Attempt, within_s: float = 60.0) -> Attempt:
        """Runs the keeper until an attempt has ended."""
        await self.until(lambda: attempt.state in ("done", "failed"), within_s)
        return attempt

    async def until(self, found: Callable[[], object], within_s: float = 60.0) -> None:
        """Runs the keeper until ``found`` returns something true."""
        running = asyncio.create_task(self.keeper.keep())
        try:
            async with asyncio.timeout(within_s):
                while not found():  # noqa: ASYNC110  # the keeper has no event for tests
                    await asyncio.sleep(0.01)
        finally:
            running.cancel()
            await asyncio.wait({running})


def lines_of(path: Path) -> list[Line]:
    """Returns the lines of a snapshot."""
    return [msgspec.json.decode(line, type=Line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def whole(path: Path) -> tuple[Header, Sequence[PartitionsLine], Trailer]:
    """Returns header, partitions and trailer of a snapshot, whose counts must be right."""
    first, *rest, last = lines_of(path)
    assert isinstance(first, Header)
    assert isinstance(last, Trailer)
    parts = [line for line in rest if isinstance(line, PartitionsLine)]
    counted = (1 + len(rest), sum(len(line.partition) for line in parts), len(rest) - len(parts))
    assert (last.lines, last.partitions, last.brokers) == counted
    return first, parts, last
