"""Waits for the effects of a fault, and repairs them."""

from __future__ import annotations

from tests.kit.deadlines import eventually
from tests.verify.watched.stage import Watched


async def restored(s: Watched) -> None:
    """Restores the stage after a fault that failed."""
    for process in (s.w.cluster.zookeeper, *s.w.cluster.brokers.values(), *s.endpoints.values(), *s.daemons.values()):
        process.resume()
    await s.w.reconnected()
    for daemon in s.daemons.values():
        if not daemon.running:
            await daemon.boot(None)
    await s.active()
    await revived(s, *(broker for broker, process in s.w.cluster.brokers.items() if not process.running))


async def value(s: Watched, expression: str, least: float, within_s: float = 60.0) -> None:
    """Waits until Prometheus has seen the value."""

    async def seen() -> bool:
        found = await s.prometheus.query(expression)
        return any(float(sample["value"][1]) >= least for sample in found)

    await eventually(seen, within_s)


async def last_one_dies(s: Watched, topic: str) -> None:
    """Kills broker 2, then broker 1, which is left in sync; broker 2 returns."""
    await s.w.healed()
    await s.w.cluster.brokers[2].kill()

    async def alone() -> bool:
        _, state = (await s.w.states())[topic, 0]
        return state is not None and state.isr == (1,)

    await eventually(alone, 60)
    await s.w.cluster.brokers[1].kill()
    await s.w.cluster.revive(2)


async def revived(s: Watched, *brokers: int) -> None:
    """Boots brokers and waits until every replica is in sync."""
    for broker in brokers:
        await s.w.cluster.revive(broker)
    await s.w.healed(180)


async def gone(s: Watched, topic: str) -> None:
    """Waits until the topic is deleted."""

    async def deleted() -> bool:
        return await s.w.zk.exists(f"/brokers/topics/{topic}") is None

    await eventually(deleted, 60)


def other(s: Watched, instance: str) -> str:
    """Returns the instance of the other daemon."""
    return next(place for place in s.daemons if place != instance)
