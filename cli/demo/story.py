"""Plays the demo's story: each step is one line, with the longest produce stall that it caused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from rich.console import Console

from cli.demo.process import RegentProcess
from cli.demo.telling import DemoFailed, Telling
from testing.embedded.cluster import EmbeddedCluster
from testing.embedded.load import Load, Reader

TOPIC = "orders"
PARTITIONS = 60
RATE_PER_S = 500
FLOWING_S = 0.5
"""Longest wait of a record for its acknowledgement once records flow again."""


async def flows(load: Load) -> bool:
    """Returns whether records are acknowledged at once."""
    return load.oldest().seconds < FLOWING_S


class Story(Telling):
    """Plays the steps on a running cluster and prints them."""

    def __init__(self, console: Console, cluster: EmbeddedCluster, regent: RegentProcess) -> None:
        super().__init__(console, regent)
        self.cluster = cluster
        self.regent = regent

    async def play(self) -> bool:
        """Plays the whole story; returns whether it ended well."""
        self.line(
            f"a real ZooKeeper and {len(self.cluster.brokers)} unmodified Kafka 3.9 brokers are up; "
            "one of the brokers is the controller"
        )
        took_s = await self.regent.boot()
        self.line(f"regent took the controller role from it, {took_s:.1f} s after the daemon's start")
        load = Load(self.cluster.bootstrap, {TOPIC: PARTITIONS}, rate_per_s=RATE_PER_S, idempotent=True)
        async with load, Reader(self.cluster.bootstrap, load) as reader:
            await self.healed()
            await self.snapshot_taken()
            self.line(
                f"topic '{TOPIC}' has {PARTITIONS} partitions x 3 replicas; {RATE_PER_S} records a second are "
                "written (acks=all) and read from now on"
            )
            await self.steps(load)
            await load.stop()
            await self.snapshot_taken()
            verdict = await reader.verdict()
        clean = await self.verified()
        self.line(
            f"{verdict.acknowledged} records acknowledged, {verdict.read} read back, "
            f"[bold]{len(verdict.lost)} lost[/]; 'regent verify' is [bold]{'clean' if clean else 'NOT clean'}[/]"
        )
        return self.judged() and clean and not verdict.lost

    async def steps(self, load: Load) -> None:
        """Plays crashes and restarts, each printed when the cluster is well again."""
        victim, leaver = 2, 3
        async with self._step(load) as report:
            led = len([p for p in await self.regent.partitions() if p.get("leader") == victim])
            await self.cluster.brokers[victim].kill()
            moved_s = await self.until(lambda: self._leads_nothing(victim), f"broker {victim} leads nothing")
            report(
                f"broker {victim} was killed (kill -9): its {led} leaders moved, {moved_s:.1f} s after the kill "
                "(nearly all of it the 6 s of its ZooKeeper session)"
            )
        async with self._step(load) as report:
            await self.cluster.brokers[victim].boot()
            healed_s = await self.healed()
            report(f"broker {victim} is back: every replica in sync again {healed_s:.1f} s after it had booted")
        async with self._step(load) as report:
            await self.regent.kill()
            down_s = await self.regent.boot()
            epoch = (await self.regent.status() or {}).get("controllerEpoch")
            report(
                f"regent itself was killed (kill -9) and restarted: controller again after {down_s:.1f} s, at epoch "
                f"{epoch}; the brokers served on"
            )
        async with self._step(load) as report:
            stopped = await self.cluster.brokers[leaver].shut_down()
            how = (
                f"its first request was accepted, in {stopped.took_ms} ms"
                if stopped.first_try
                else "its first request was REFUSED"
            )
            report(f"broker {leaver} was stopped cleanly (SIGTERM): {how}, its leaders moved beforehand")
        async with self._step(load) as report:
            await self.cluster.brokers[leaver].boot()
            healed_s = await self.healed()
            report(f"broker {leaver} is back: every replica in sync again {healed_s:.1f} s after it had booted")

    @asynccontextmanager
    async def _step(self, load: Load) -> AsyncIterator[Callable[[str], None]]:
        lines: list[str] = []
        load.take_stall()
        yield lines.append
        await self.until(lambda: flows(load), "records are acknowledged at once again")
        stall = load.take_stall()
        for text in lines:
            self.line(f"{text} [dim](longest produce stall {stall.seconds:.2f} s)[/]")

    async def healed(self) -> float:
        """Waits until nothing is under-replicated or offline; returns the seconds."""

        async def whole() -> bool:
            return not await self.regent.partitions("under-replicated", "offline")

        return await self.until(whole, "every partition has all replicas in sync")

    async def snapshot_taken(self) -> None:
        """Has the daemon write a snapshot, so that a report knows min ISR of the topic from its creation on.

        The one after the election comes before the topic. It waits for the brokers' settings, and this waits for it.
        """

        async def known() -> bool:
            taken = (await self.regent.get("/v1/snapshots"))["items"]
            return any(one["state"] == "done" for one in taken)

        await self.until(known, "a snapshot after the election")
        [asked] = (await self.regent.post("/v1/snapshots", {"reason": "demo"}))["items"]

        async def done() -> bool:
            [found] = (await self.regent.get(f"/v1/snapshots/{asked['number']}"))["items"]
            if found["state"] == "failed":
                raise DemoFailed(f"there is no snapshot: {found['error']}\n{self.regent.log_tail()}")
            return bool(found["state"] == "done")

        await self.until(done, "a snapshot with the new topic")

    async def _leads_nothing(self, broker: int) -> bool:
        return all(p.get("leader") not in {broker, None} for p in await self.regent.partitions())

    async def verified(self) -> bool:
        """Returns whether ``regent verify`` is clean."""
        [found] = (await self.regent.get("/v1/verification"))["items"]
        return not found["differencesTotal"] and not found.get("unreachable")
