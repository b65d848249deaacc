"""Plays the steps of one run, under regent or under Kafka's own controller, and measures the stall of each.

The steps are the same for both where Kafka has them; a controller's death is a daemon's under regent and a broker's
under Kafka, a take-over or hand-back is a move of the controller role under Kafka.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from cli.demo.process import RegentProcess
from testing.embedded.ledger import Verdict
from testing.embedded.load import Load, Reader
from tests.kit.cluster.world import ClusterWorld, world
from tests.kit.deadlines import eventually

TOPIC = "orders"
PARTITIONS = 60
RATE_PER_S = 500
WARM_RECORDS = 20
FLOWING_S = 0.5
"""Records flow again once none waits longer for its acknowledgement."""


@dataclass(frozen=True)
class Step:
    """The longest produce stall of a step and its duration, in seconds."""

    name: str
    stall_s: float
    took_s: float


@dataclass
class Run:
    """One run: its steps, the fate of every record, and whether each controlled shutdown succeeded at the first try."""

    controller: str
    ibp: str
    steps: list[Step] = field(default_factory=list)
    verdict: Verdict | None = None
    shutdowns: list[str] = field(default_factory=list)
    clean: bool | None = None

    @property
    def sound(self) -> bool:
        """Returns whether no acknowledged record was lost, shutdowns took one try, and ``regent verify`` was clean."""
        return self.verdict is not None and not self.verdict.lost and not self.shutdowns and self.clean is not False


@asynccontextmanager
async def step(run: Run, load: Load, name: str) -> AsyncIterator[None]:
    """Times a step and takes its stall."""
    load.take_stall()
    began = time.monotonic()
    yield
    await eventually(lambda: load.oldest().seconds < FLOWING_S, 30.0)
    run.steps.append(Step(name, load.take_stall().seconds, time.monotonic() - began))


async def play(controller: str, ibp: str, *, role_only: bool = False) -> Run:
    """Plays a whole run, or only the moves of the role; ``controller`` is ``regent`` or ``kafka``."""
    run = Run(controller, ibp)
    async with world(3, partitions=PARTITIONS, ibp=ibp) as w:
        load = Load(w.cluster.bootstrap, {TOPIC: PARTITIONS}, rate_per_s=RATE_PER_S, idempotent=True)
        async with load, Reader(w.cluster.bootstrap, load) as reader:
            await warm(load)
            await w.healed()
            await (_under_regent if controller == "regent" else _under_kafka)(w, run, load, role_only)
            await w.healed()
            await load.stop()
            run.verdict = await reader.verdict()
    return run


async def warm(load: Load) -> None:
    """Waits until every partition acknowledges at once: followers of a topic just created may pause for a second."""

    def flowing() -> bool:
        acknowledged = load.ledger.acknowledged
        return all(len(acknowledged.get(spot, ())) >= WARM_RECORDS for spot in load.spots)

    await eventually(flowing, 60.0)
    await eventually(lambda: load.oldest().seconds < FLOWING_S, 30.0)


async def _under_regent(w: ClusterWorld, run: Run, load: Load, role_only: bool) -> None:
    settings = {"controller.ibp": run.ibp}
    daemon = w.daemon(flags=["--takeover"], settings=settings)
    async with step(run, load, "take-over"):
        await daemon.boot()
        await w.healed()
    if not role_only:
        await _crashes_under_regent(w, run, load, daemon)
    run.clean = await _verified(daemon)
    async with step(run, load, "hand-back"):
        await hand_back(daemon)
        await w.broker_controls()
        await w.healed()


async def _crashes_under_regent(w: ClusterWorld, run: Run, load: Load, daemon: RegentProcess) -> None:
    await _brokers_fall(w, run, load)
    async with step(run, load, "controller killed and back"):
        await daemon.kill()
        await daemon.boot()
        await w.healed()
    async with step(run, load, "absence (brokers): daemon dead, broker killed"):
        await daemon.kill()
        await w.broker_controls()
        await _kill_and_revive(w, await _other_than_controller(w))
        await daemon.boot()
        await w.healed()
    await _hold(w, run, load, daemon)


async def _hold(w: ClusterWorld, run: Run, load: Load, first: RegentProcess) -> None:
    """Plays two daemons with ``on_absence = hold``: the standby follows, and with both dead no broker is elected."""
    await first.stop()
    settings = {"controller.ibp": run.ibp, **w.hold()}
    first.configure(settings)
    await first.boot()
    second = w.daemon(settings=settings)
    await second.boot("standby")
    async with step(run, load, "absence (hold): active killed, standby follows"):
        await first.kill()
        await eventually(lambda: second.is_in("active"), 30.0)
        await w.healed()
    async with step(run, load, "absence (hold): both dead, one returns"):
        await second.kill()
        holder, epoch = await w.controller(), await w.epoch()
        await w.daemons_gone()
        assert (await w.controller(), await w.epoch()) == (holder, epoch), "a broker was elected although locked out"
        await first.boot()
        await w.healed()
    await first.stop()
    first.configure({**w.hold(), "controller.on_absence": "brokers"})
    await first.boot()
    await w.healed()


async def _under_kafka(w: ClusterWorld, run: Run, load: Load, role_only: bool) -> None:
    async with step(run, load, "take-over"):
        await w.move_controller()
        await w.healed()
    if not role_only:
        await _brokers_fall(w, run, load)
        async with step(run, load, "controller killed and back"):
            await _kill_and_revive(w, await w.broker_controls())
            await w.healed()
    async with step(run, load, "hand-back"):
        await w.move_controller()
        await w.healed()


async def _brokers_fall(w: ClusterWorld, run: Run, load: Load) -> None:
    async with step(run, load, "broker kill -9 and back"):
        await _kill_and_revive(w, await _other_than_controller(w))
        await w.healed()
    for broker in sorted(w.cluster.brokers):
        async with step(run, load, f"SIGTERM of broker {broker} and back"):
            stopped = await w.cluster.brokers[broker].shut_down()
            if not stopped.first_try:
                run.shutdowns.append(f"broker {broker}: {stopped}")
            await w.cluster.brokers[broker].boot()
            await w.healed()


async def _kill_and_revive(w: ClusterWorld, broker: int) -> None:
    await w.cluster.brokers[broker].kill()
    await w.leads_nothing(broker)
    await w.cluster.revive(broker)


async def _other_than_controller(w: ClusterWorld) -> int:
    holder = await w.controller()
    return next(b for b in sorted(w.cluster.brokers, reverse=True) if b != holder)


async def hand_back(daemon: RegentProcess) -> None:
    """Gives the role back through the daemon and waits until that is done."""
    await daemon.post("/v1/role/handback", {"reason": "end of the run"})

    async def done() -> bool:
        [operation] = (await daemon.get("/v1/role/operation"))["items"]
        assert operation["state"] not in {"failed", "refused"}, operation
        return bool(operation["state"] == "done")

    await eventually(done, 60.0)


async def _verified(daemon: RegentProcess) -> bool:
    [found] = (await daemon.get("/v1/verification"))["items"]
    return not found["differencesTotal"] and not found.get("unreachable")
