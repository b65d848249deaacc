"""Judges from ZooKeeper alone, all the time, whether a partition's ISR is smaller than its min.insync.replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from metadata_store.codecs.cluster import Config
from metadata_store.kafka_store import KafkaStore
from metadata_store.kazoo_adapter import KazooZooKeeper
from state_machines.model.types import Leadership, TopicAssignment

MIN_ISR: Final = "min.insync.replicas"
PAUSE_S: Final = 0.01
"""Pause between two readings of all states."""
SAME_TOPICS: Final = 20
"""Readings of states between two readings of topics and their configurations."""

Spot = tuple[str, int]


@dataclass
class MinIsrWatch:
    """Readings and findings. ``default``: the brokers' min.insync.replicas, for topics without one of their own.

    ``unseen``: writes of states that another write followed before they were read; the epochs of znodes count them.
    """

    default: int
    readings: int = 0
    partitions: int = 0
    writes: int = 0
    unseen: int = 0
    below: list[str] = field(default_factory=list)
    margins: dict[int, int] = field(default_factory=dict)
    _versions: dict[Spot, int] = field(default_factory=dict)

    def judge(self, states: Mapping[Spot, Leadership], configs: Mapping[str, Config]) -> None:
        """Judges one reading."""
        self.readings += 1
        self.partitions = len(states)
        for spot, state in states.items():
            own = configs[spot[0]].entries.get(MIN_ISR) if spot[0] in configs else None
            needed = int(own) if own is not None else self.default
            before = self._versions.get(spot, state.version)
            self.writes += state.version - before
            self.unseen += max(0, state.version - before - 1)
            if state.version != before or spot not in self._versions:
                margin = len(state.isr) - needed
                self.margins[margin] = self.margins.get(margin, 0) + 1
                if margin < 0:
                    self.below.append(f"{spot}: {state} is below min.insync.replicas={needed}")
            self._versions[spot] = state.version

    def __str__(self) -> str:
        margins = ", ".join(f"{count} states {margin} above" for margin, count in sorted(self.margins.items()))
        return (
            f"{self.readings} readings of {self.partitions} partitions, {self.writes} writes of which {self.unseen} "
            f"were followed before they were read, {len(self.below)} below min.insync.replicas; {margins}"
        )


@asynccontextmanager
async def min_isr_watch(connect: str, default: int) -> AsyncIterator[MinIsrWatch]:
    """Watches inside the block, with a session of its own; an error of the watcher is raised at its end."""
    zk = KazooZooKeeper(connect, session_timeout_ms=20_000)
    await zk.connect(20.0)
    watch = MinIsrWatch(default)
    ended = asyncio.Event()
    task = asyncio.create_task(_watched(KafkaStore(zk), watch, ended), name="min-isr-watch")
    try:
        yield watch
    finally:
        ended.set()
        await task
        await zk.close()


async def _watched(store: KafkaStore, watch: MinIsrWatch, ended: asyncio.Event) -> None:
    while not ended.is_set():
        topics = [topic for topic in await store.load_topics() if isinstance(topic, TopicAssignment)]
        found = await store.load_topic_configs([topic.name for topic in topics])
        configs = {name: config for name, config in found.items() if isinstance(config, Config)}
        names = [(topic.name, partition) for topic in topics for partition in topic.partitions]
        for _ in range(SAME_TOPICS):
            states = zip(names, await store.load_states(names), strict=True)
            watch.judge({spot: state for spot, state in states if isinstance(state, Leadership)}, configs)
            await asyncio.sleep(PAUSE_S)
