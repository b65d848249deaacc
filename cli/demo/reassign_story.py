"""Plays ``regent demo reassign``: a throttled plan of 50 partitions under load, its daemon killed twice on the way."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any, Final

import httpx

from cli.demo.story import Story, flows
from cli.demo.telling import POLL_S, DemoFailed
from cli.offline import role_at
from cli.progress import ProgressLine
from configs.loading import load as load_settings
from metadata_store.nodes.entity_configs import EntityConfig, read_entities
from state_machines.admin_rules.throttles import (
    BROKERS,
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    TOPICS,
)
from testing.embedded.load import Load, Reader, fill

BROKER_COUNT: Final = 4
PARTITIONS: Final = 50
RATE_PER_S: Final = 200
PARTITION_BYTES: Final = 1_000_000
THROTTLE_BYTES_PER_S: Final = 700_000
MOVES_MAX: Final = 8
KILLS: Final = (12, 30)
"""Partitions that have moved when the daemon is killed."""
PLAN_S_MAX: Final = 240.0
LINE_S: Final = 4.0
"""Pause between two lines of progress, where there is no bar."""
TOPIC: Final = "orders"
SETTINGS: Final = frozenset({LEADER_RATE, FOLLOWER_RATE, LEADER_REPLICAS, FOLLOWER_REPLICAS})


class ReassignStory(Story):
    """Moves one replica of every partition to the broker that has none of them."""

    async def play(self) -> bool:
        """Plays the whole story; returns whether it ended well."""
        self.line(f"a real ZooKeeper and {BROKER_COUNT} unmodified Kafka 3.9 brokers are up")
        took_s = await self.regent.boot()
        self.line(f"regent took the controller role, {took_s:.1f} s after the daemon's start")
        load = Load(self.cluster.bootstrap, {TOPIC: PARTITIONS}, rate_per_s=RATE_PER_S, idempotent=True)
        async with load, Reader(self.cluster.bootstrap, load) as reader:
            await self.healed()
            await fill(self.cluster.bootstrap, load.spots, PARTITION_BYTES)
            await self.snapshot_taken()
            self.line(
                f"topic '{TOPIC}' has {PARTITIONS} partitions x 3 replicas of {PARTITION_BYTES / 1e6:.0f} MB; "
                f"{RATE_PER_S} records a second are written (acks=all) and read from now on"
            )
            targets = await self._moved(load)
            await load.stop()
            verdict = await reader.verdict()
        placed = await self._placed()
        left = await self._throttles()
        off = sorted(number for number, target in targets.items() if placed.get(number) != target)
        self.line(
            f"[bold]{len(targets) - len(off)} of {len(targets)}[/] partitions are at their target, "
            f"[bold]{len(left)}[/] throttle settings are left{f': {sorted(left)}' if left else ''}"
        )
        clean = await self.verified()
        self.line(
            f"{verdict.acknowledged} records acknowledged, {verdict.read} read back, "
            f"[bold]{len(verdict.lost)} lost[/]; 'regent verify' is [bold]{'clean' if clean else 'NOT clean'}[/]"
        )
        return self.judged() and clean and not verdict.lost and not off and not left

    async def _moved(self, load: Load) -> dict[int, list[int]]:
        """Applies the plan, kills the daemon on the way, and waits for the end; returns the target replicas."""
        targets = {number: _target(replicas) for number, replicas in (await self._placed()).items()}
        moves = [{"topic": TOPIC, "partition": number, "target": target} for number, target in targets.items()]
        caps = {"movesMax": MOVES_MAX, "rateBytesPerS": THROTTLE_BYTES_PER_S}
        [begun] = (await self.regent.post("/v1/reassignments", {"moves": moves, "reason": "demo", **caps}))["items"]
        self.line(
            f"plan pid {begun['pid']} moves one replica of each of {len(moves)} partitions, {MOVES_MAX} at a time, "
            f"at {THROTTLE_BYTES_PER_S / 1e3:.0f} kB/s for each broker and direction (regent reassign apply)"
        )
        load.take_stall()
        for kill in KILLS:
            await self._followed(begun["pid"], kill)
            await self._killed(kill)
        ended = await self._followed(begun["pid"], PARTITIONS + 1)
        await self.until(lambda: flows(load), "records are acknowledged at once again")
        self.line(
            f"the plan ended: [bold]{ended['state']}, {ended.get('result') or ended.get('error')}[/] "
            f"[dim](longest produce stall {load.take_stall().seconds:.2f} s)[/]"
        )
        return targets

    async def _killed(self, done: int) -> None:
        await self.regent.kill()
        down_s = await self.regent.boot()
        self.line(
            f"regent was killed (kill -9) after {done} moves and restarted: controller again after {down_s:.1f} s, "
            "the plan goes on where it was"
        )

    async def _followed(self, pid: int, count: int) -> dict[str, Any]:
        """Shows the progress until so many partitions have moved, or the plan has ended; returns the procedure."""
        ends_s, next_s = time.monotonic() + PLAN_S_MAX, 0.0
        with ProgressLine(self.console, pid, self.line) as line:
            while time.monotonic() < ends_s:
                try:
                    [found] = (await self.regent.get(f"/v1/procedures/{pid}"))["items"]
                    moves = (await self.regent.get(f"/v1/procedures/{pid}/moves"))["items"]
                except httpx.HTTPError as error:
                    raise DemoFailed(f"pid {pid} is not shown: {error}\n{self.regent.log_tail()}") from error
                if found["ended"] or Counter(move["status"] for move in moves)["done"] >= count:
                    return dict(found)
                if self.console.is_terminal or time.monotonic() >= next_s:
                    line.show(found)
                    next_s = time.monotonic() + LINE_S
                await asyncio.sleep(POLL_S)
        raise DemoFailed(f"not within {PLAN_S_MAX:.0f} s: {count} moves of pid {pid}\n{self.regent.log_tail()}")

    async def _placed(self) -> dict[int, list[int]]:
        found = await self.regent.partitions(topic=TOPIC)
        return {partition["partition"]: partition["replicas"] for partition in found}

    async def _throttles(self) -> set[str]:
        """Reads from ZooKeeper which settings of throttles are left, of any broker or of the topic."""
        left: set[str] = set()
        async with role_at(load_settings(self.regent.config).settings) as role:
            for kind, names in ((BROKERS, list(map(str, self.cluster.brokers))), (TOPICS, [TOPIC])):
                for name, known in (await read_entities(role.zk, kind, names)).items():
                    entries = known.config.entries if isinstance(known, EntityConfig) else {}
                    left |= {f"{setting} of {kind} {name}" for setting in SETTINGS & entries.keys()}
        return left


def _target(replicas: list[int]) -> list[int]:
    """Returns the replicas with the last one on the broker that has none."""
    [free] = set(range(1, BROKER_COUNT + 1)) - set(replicas)
    return [*replicas[:-1], free]
