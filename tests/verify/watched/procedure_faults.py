"""Causes what keeps procedures from their end, on the stage of :mod:`tests.verify.watched.faults`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from controller.role import own_znodes as own
from metadata_store.port import ANY_VERSION
from metadata_store.records.znodes import NAME_DIGITS
from testing.znodes import create_topic
from tests.kit.deadlines import eventually
from tests.verify.watched.mending import gone, revived, value
from tests.verify.watched.stage import Watched

BROKERS: Final = [1, 2, 3]
RATE: Final = 50_000_000
STUCK_S_MAX: Final = 700.0
"""Ten attempts in vain have nine pauses between them, which double from a second."""
IDLE: Final = 'max(regent_procedures_without_progress_seconds{cause="other"})'
IDLE_S: Final = 20.0
"""Time without progress that a recording has to show; the rest of the 15 minutes is held."""
DAMAGED: Final = f"{own.PROCEDURES}/{9_999:0{NAME_DIGITS}d}"


@asynccontextmanager
async def plan_waits_for_throttle(s: Watched) -> AsyncIterator[None]:
    """Applies a plan with a throttle while an operator throttles its brokers: it tries to begin in vain."""
    throttle = await _post(s, "/v1/throttles", {"brokers": BROKERS, "rateBytesPerS": RATE})
    await _planned(s, "waiting", (1, 2), (1, 3), {"rateBytesPerS": RATE})
    await value(s, "max(regent_procedures_stuck)", 1, STUCK_S_MAX)
    yield
    await _post(s, "/v1/throttles/lift", {"pids": [throttle["pid"]]})
    await value(s, "1 - max(regent_procedures)", 1, STUCK_S_MAX)
    await _deleted(s, "waiting")


@asynccontextmanager
async def plan_waits_for_broker(s: Watched) -> AsyncIterator[None]:
    """Applies a plan to a broker that dies before it has copied: the plan waits, and tries nothing."""
    pid = await _planned(s, "awaited", (1, 3), (1, 2), {"paused": True})
    await s.w.cluster.brokers[2].kill()
    await s.w.leads_nothing(2)
    await _post(s, f"/v1/reassignments/{pid}", {"paused": False})
    await value(s, IDLE, IDLE_S, 120)
    yield
    await revived(s, 2)
    await value(s, "1 - max(regent_procedures)", 1, STUCK_S_MAX)
    await _deleted(s, "awaited")


@asynccontextmanager
async def plan_paused(s: Watched) -> AsyncIterator[None]:
    """Applies a plan that is paused."""
    pid = await _planned(s, "rested", (1, 2), (1, 3), {"paused": True})
    await value(s, "max(regent_paused_plans)", 1)
    yield
    await _post(s, f"/v1/procedures/{pid}/cancel", {})
    await value(s, "1 - max(regent_procedures)", 1)
    await _deleted(s, "rested")


@asynccontextmanager
async def moves_paused(s: Watched) -> AsyncIterator[None]:
    """Pauses automatic moves."""
    await _post(s, "/v1/pause", {"reason": "the network is rebuilt"})
    await value(s, "max(regent_moves_paused)", 1)
    yield
    await _post(s, "/v1/pause/remove", {})
    await value(s, "1 - max(regent_moves_paused)", 1)


@asynccontextmanager
async def record_damaged(s: Watched) -> AsyncIterator[None]:
    """Writes a record that no daemon reads, and has another term load it."""
    throttle = await _post(s, "/v1/throttles", {"brokers": [1], "rateBytesPerS": RATE})
    await _post(s, "/v1/throttles/lift", {"pids": [throttle["pid"]]})
    await s.w.zk.create(DAMAGED, b"{")
    await _another_term(s)
    await value(s, "max(regent_procedures_unusable)", 1)
    yield
    await s.w.zk.delete(DAMAGED, ANY_VERSION)
    await _another_term(s)
    await value(s, "1 - max(regent_procedures_unusable)", 1)


@asynccontextmanager
async def moved_off_dead_broker(s: Watched) -> AsyncIterator[None]:
    """Moves a replica off a broker that is down: its log stays there."""
    await create_topic(s.w.zk, "left", {0: (2, 3)})
    await s.w.healed()
    await s.w.cluster.brokers[2].kill()
    await s.w.leads_nothing(2)
    await _applied(s, "left", (1, 3), {})
    await value(s, "max(regent_remembered_replicas)", 1)
    yield
    await revived(s, 2)
    await value(s, "1 - max(regent_remembered_replicas)", 1)
    await _deleted(s, "left")


async def _post(s: Watched, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    [item] = (await s.daemons[await s.active()].post(path, body))["items"]
    return dict(item)


async def _planned(s: Watched, topic: str, origin: tuple[int, ...], target: tuple[int, ...], how: Any) -> int:
    await create_topic(s.w.zk, topic, {0: origin})
    await s.w.healed()
    return await _applied(s, topic, target, how)


async def _applied(s: Watched, topic: str, target: tuple[int, ...], how: Mapping[str, Any]) -> int:
    move = {"topic": topic, "partition": 0, "target": target}
    return int((await _post(s, "/v1/reassignments", {"moves": [move], **how}))["pid"])


async def _another_term(s: Watched) -> None:
    epoch = await s.w.epoch()
    await s.w.zk.delete("/controller", ANY_VERSION)

    async def begun() -> bool:
        return await s.w.epoch() > epoch and bool(await s.active())

    await eventually(begun, 60)


async def _deleted(s: Watched, topic: str) -> None:
    await s.w.zk.create(f"/admin/delete_topics/{topic}", b"")
    await gone(s, topic)
