"""Measures a snapshot of a large model: its time, the lag of the loop, its reading (``-m benchmarks.snapshot_speed``).

The model is in memory, without ZooKeeper and brokers: the lag is the loop's while it does nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import uvloop

from configs.journal_section import SnapshotsSettings
from controller.kafka.journal.term_journal import KafkaJournal
from controller.kafka.snapshots.taking import Taken, take
from controller.kafka.term.term import Term
from controller.main import tune
from state_machines.model.cluster import Cluster
from state_machines.model.min_isr import MinIsr
from state_machines.model.types import Assignment, Broker, Leadership, TopicAssignment

BROKERS: Final = 300
TICK_S: Final = 0.001


def model(partitions: int, per_topic: int) -> Cluster:
    """Makes a cluster with three replicas for each partition."""
    cluster = Cluster(5)
    cluster.observe_brokers({b: Broker(b, 100 + b, (), f"rack{b % 10}") for b in range(BROKERS)})
    for topic in range(partitions // per_topic):
        placed = {p: Assignment(tuple((topic + p + i * 7) % BROKERS for i in range(3))) for p in range(per_topic)}
        found = TopicAssignment(f"topic-{topic:06d}", topic.to_bytes(16, "big"), placed, 0, topic + 1)
        rows = cluster.observe_topic(found)
        replicas = [cluster.rows[i].assignment.replicas for i in rows]
        cluster.load_leadership(rows, [Leadership(r[0], 3, r, 5, 9) for r in replicas])
    return cluster


def term_of(cluster: Cluster) -> Term:
    """Returns what a snapshot uses of a term."""
    idle = asyncio.Event()
    idle.set()
    controller = SimpleNamespace(
        journal=KafkaJournal(), adoption=SimpleNamespace(session_ms=lambda _: 18_000), min_isr=MinIsr(2, {})
    )
    found: Any = SimpleNamespace(
        cluster=cluster, controller=controller, idle=idle, gate=SimpleNamespace(why_ended=None)
    )
    return cast("Term", found)


async def watched(lags: list[float]) -> None:
    """Notes how late each turn of the loop is."""
    while True:
        due = time.monotonic() + TICK_S
        await asyncio.sleep(TICK_S)
        lags.append(time.monotonic() - due)


async def measured(cluster: Cluster, folder: Path) -> tuple[Taken, float, list[float], list[float]]:
    """Takes one snapshot; returns it with its seconds, and the lags before it and during it."""
    before: list[float] = []
    during: list[float] = []
    watch = asyncio.create_task(watched(before))
    await asyncio.sleep(2.0)
    watch.cancel()
    watch = asyncio.create_task(watched(during))
    began_s = time.monotonic()
    taken = await take(term_of(cluster), folder, SnapshotsSettings(), "command", 1)
    watch.cancel()
    return taken, time.monotonic() - began_s, before, during


def main() -> None:
    """Prints the figures of one snapshot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000_000)
    parser.add_argument("--per-topic", type=int, default=100)
    given = parser.parse_args()
    tune()
    cluster = model(given.partitions, given.per_topic)
    with tempfile.TemporaryDirectory() as folder:
        own = time.process_time()
        taken, took_s, before, during = uvloop.run(measured(cluster, Path(folder)))
        own = time.process_time() - own
        child = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"{taken.written.partitions} partitions, {given.per_topic} a topic: {took_s:.1f} s")
        print(
            f"daemon {own:.1f} s of CPU, its child {child.ru_utime + child.ru_stime:.1f} s, {child.ru_maxrss >> 10} MiB"
        )
        print(f"lag of the loop: at most {1_000 * max(during):.0f} ms; idle before {1_000 * max(before):.0f} ms")
        print(f"{taken.written.file_bytes / taken.written.partitions:.1f} bytes a partition on disk")
        from pipeline.snapshot_file import read_snapshot

        began_s = time.monotonic()
        found = read_snapshot(Path(folder) / taken.written.name)
        print(f"read into arrays in {time.monotonic() - began_s:.1f} s: {len(found.partitions)} partitions")


if __name__ == "__main__":
    main()
