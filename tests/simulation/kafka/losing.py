"""Kills brokers and racks of simulated clusters, and compares each loss with what ``what-if`` said before it.

A cluster is drawn from a seed: 5 brokers or more in racks, topics of any replication, one broker that lags behind in
half of them, and dead brokers in a third. It is one run: before each kill the daemon's model is written as a snapshot
and read again; after it ZooKeeper has the truth. Then the brokers return and their replicas catch up.
"""

from __future__ import annotations

import asyncio
import io
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from controller.kafka.path.topic_settings import read_min_isr
from controller.kafka.snapshots.taking import broker_lines, parts_of
from controller.kafka.snapshots.writer import Begin, End, Message, framed, write_snapshot
from metadata_store.kafka_store import KafkaStore
from pipeline.inputs import Loads, Snapshot
from pipeline.snapshot_file import read_snapshot
from pipeline.what_if import NAMED_MAX, Loss, _World, losses, sets_of
from state_machines.journal.snapshot import FORMAT, VERSION, Header
from state_machines.model.types import NO_LEADER
from testing.simulated.digest import Truth
from testing.znodes import create_topic
from tests.simulation.kafka.history import Key
from tests.simulation.kafka.plan import Plan
from tests.simulation.kafka.surroundings import surroundings
from tests.simulation.kafka.unfinished import unfinished
from tests.simulation.kafka.world import SimulatedKafka

POLL_S: Final = 0.25
STEADY_POLLS: Final = 20
"""Longer than a leader takes to remove a follower that lags."""
WITHIN_S: Final = 120.0
"""Virtual time within which a cluster must be as it is waited for."""
MIN_ISRS: Final = (None, "1", "2", "3")


@dataclass
class Losses:
    """The losses of one cluster, and the differences between what was said and what came."""

    seed: int
    brokers: int
    partitions: int
    dead: int
    compared: int = 0
    offline: int = 0
    under: int = 0
    moved: int = 0
    differences: list[str] = field(default_factory=list)


class Losing(SimulatedKafka):
    """A cluster drawn from a seed, whose script is :meth:`story`."""

    def __init__(self, seed: int, folder: Path, brokers: tuple[int, int], partitions: tuple[int, int]) -> None:
        self.draw = Random(f"{seed} losing")
        count = self.draw.randint(*brokers)
        racks = self.draw.randint(3, 5)
        ids = tuple(range(1, count + 1))
        super().__init__(Plan(seed, ids, tuple(f"r{b % racks}" for b in ids), daemons=1))
        for daemon in self.daemons:
            quiet = daemon.settings.controller.model_copy(update={"auto_leader_rebalance_enable": False})
            daemon.settings = daemon.settings.model_copy(update={"controller": quiet})
        self.folder = folder
        self.least = self.draw.randint(*partitions)
        self.dying = self.draw.sample(ids, self.draw.randint(1, max(1, count // 5))) if seed % 3 == 0 else []
        self.dead: set[int] = set()
        self.lags = self.draw.choice(ids) if seed % 2 else None
        self.found = Losses(seed, count, 0, len(self.dying))
        self.quiescence.begin = lambda: self.operators.start(self.told())  # type: ignore[method-assign]

    async def told(self) -> None:
        """Plays :meth:`story`, and ends the run with it."""
        try:
            await self.story()
        except Exception as error:
            self.found.differences.append(f"seed {self.plan.seed}: {error!r}")
        self.loop.halt()

    async def story(self) -> None:
        """Makes the topics, and loses each broker and each rack."""
        await self.until(lambda: self.serving_term() is not None)
        while self.found.partitions < self.least:
            await self.topic()
        await self.until(self.well)
        if self.lags is not None:
            self.brokers[self.lags].lagging = True
        term = self.serving_term()
        assert term is not None
        term.cluster.min_isr = await read_min_isr(KafkaStore(self.operator), self.dial, term.cluster)
        self.dead.update(self.dying)
        for broker in self.dying:
            self.brokers[broker].crash()
        await self.until(self.well)
        for name, lost in sets_of(self.snapshot()).items():
            await self.lose(name, lost)

    async def topic(self) -> None:
        """Creates a topic of 5 to 40 partitions, with one to four replicas."""
        ids, least = list(self.brokers), self.draw.choice(MIN_ISRS)
        width = self.draw.randint(1, 4)
        placed = {partition: tuple(self.draw.sample(ids, width)) for partition in range(self.draw.randint(5, 40))}
        self.found.partitions += len(placed)
        config = {"min.insync.replicas": least} if least is not None else {}
        await create_topic(self.operator, f"t{self.found.partitions}", placed, config=config)

    async def lose(self, name: str, lost: tuple[int, ...]) -> None:
        """Kills brokers, compares what came with what was said, and starts them again."""
        given, before = self.snapshot(), self.quiescence.views.truth()
        [said] = losses(given, Loads.none(len(given.partitions)), {name: lost})
        for broker in lost:
            self.brokers[broker].crash()
        await self.until(lambda: self.settled(set(self.brokers) - self.dead - set(lost)))
        after = self.quiescence.views.truth()
        came = self.came(name, lost, before, after)
        self.found.compared += 1
        self.found.offline += came.offline
        self.found.under += came.under_min_isr
        self.found.moved += came.led
        if said != came:
            self.found.differences.append(f"seed {self.plan.seed}, {name}: said {said}, came {came}")
        elif elected := [key for key, leader in leaders(given, lost).items() if leader != after[key].leader]:
            self.found.differences.append(f"seed {self.plan.seed}, {name}: others lead {elected}")
        for broker in lost:
            self.brokers[broker].start()
        await self.until(self.well)

    def came(self, name: str, lost: tuple[int, ...], before: Mapping[Key, Truth], after: Mapping[Key, Truth]) -> Loss:
        """Returns what a loss has cost by the content of ZooKeeper."""
        gone = set(lost)
        min_isr = self.min_isr()
        down = sorted(k for k, now in after.items() if now.leader == NO_LEADER != before[k].leader)
        under = [
            key
            for key, now in after.items()
            if (least := min_isr(key[0])) is not None and len(before[key].isr) >= least > len(set(now.isr) - gone)
        ]
        moved = [key for key, now in after.items() if now.leader != before[key].leader]
        leads = Counter(now.leader for now in after.values() if now.leader != NO_LEADER)
        most = max(leads.items(), key=lambda item: (item[1], -item[0])) if leads else None
        named = tuple(f"{topic}-{partition}" for topic, partition in down[:NAMED_MAX])
        bytes_in = (min(leads), 0.0) if leads else None
        return Loss(name, lost, len(down), len(under), len(moved), most, bytes_in, named)

    def min_isr(self) -> Callable[[str], int | None]:
        """Returns the daemon's knowledge of ``min.insync.replicas``."""
        term = self.serving_term()
        assert term is not None
        return term.cluster.min_isr.of

    def snapshot(self) -> Snapshot:
        """Writes the daemon's model to a file as its child does, and reads it as the pipeline does."""
        term = self.serving_term()
        assert term is not None
        header = Header(FORMAT, VERSION, "c", 1, term.cluster.epoch, 1, 1, "command")
        begin = Begin(str(self.folder), 1, 1 << 40, header, broker_lines(term.cluster, lambda _: None))
        messages: list[Message] = [begin, *parts_of(term.cluster, term.cluster.min_isr), End(1, 1)]
        written = write_snapshot(io.BytesIO(b"".join(map(framed, messages))))
        assert not written.err, written.err
        return read_snapshot(self.folder / written.name)

    def settled(self, live: set[int]) -> bool:
        """Returns whether exactly these brokers are registered, and the daemon has dealt with that."""
        term = self.serving_term()
        if term is None or self.invariants.history.registered.keys() != live or term.cluster.brokers.keys() != live:
            return False
        return not len(term.queue) and term.handling is None and not list(unfinished(self))

    def well(self) -> bool:
        """Returns whether all brokers that are not dead are back, and their replicas are in sync."""
        live = set(self.brokers) - self.dead
        if not self.settled(live):
            return False
        able = {broker for broker in live if not self.brokers[broker].lagging}
        truth = self.quiescence.views.truth()
        return len(truth) == self.found.partitions and all(
            now.leader not in able or set(now.replicas) & able <= set(now.isr) for now in truth.values()
        )

    async def until(self, so: Callable[[], bool]) -> None:
        """Waits in virtual time until a condition holds, and nothing changes in ZooKeeper meanwhile."""
        ends_s, steady, before = self.loop.now_s + WITHIN_S, 0, 0
        while steady < STEADY_POLLS or not so():
            assert self.loop.now_s < ends_s, "the cluster is not as it should be"
            written = sum(map(len, self.invariants.history.states.values()))
            steady = steady + 1 if written == before else 0
            before = written
            await asyncio.sleep(POLL_S)


def leaders(given: Snapshot, lost: tuple[int, ...]) -> dict[Key, int]:
    """Returns the leader of each partition after a loss, as what-if has it: its figures show the busiest one alone."""
    table = given.partitions
    found = _World(given, Loads.none(len(table))).decided(frozenset(lost)).leaders.tolist()
    names = [(table.topics[at], partition) for at, partition in zip(table.topic, table.partition.tolist(), strict=True)]
    return dict(zip(names, found, strict=True))


def lose_each(seed: int, folder: Path, brokers: tuple[int, int], partitions: tuple[int, int]) -> Losses:
    """Plays a seed; ``brokers`` and ``partitions`` are the least and the most. Call it in a child."""
    folder.mkdir(parents=True, exist_ok=True)
    world = Losing(seed, folder, brokers, partitions)
    with surroundings(world):
        world.operators.start(world._begin())
        world.loop.run_forever()
    if world.violation is not None:
        world.found.differences.append(f"seed {seed}: {world.violation}")
    return world.found
