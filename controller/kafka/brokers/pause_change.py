"""Follows the pause of automatic moves: the balance, and waves of plans and drains, stand still; elections never do."""

from __future__ import annotations

import asyncio
import logging

from controller.kafka.path.controller import Controller
from controller.kafka.path.event_kinds import EventKind
from controller.process.wall_clock import wall_ms
from metadata_store.codecs.base import Malformed
from metadata_store.nodes.pause_node import PATH, Pause, read_pause

log = logging.getLogger("regent.controller")


async def pause_change(c: Controller) -> None:
    """Reads the pause and watches it; one that is not understood leaves the one before in force."""
    since = c.zk.last_zxid
    found = await read_pause(c.zk)
    absent = not isinstance(found, Malformed) and found.znode_version is None
    await c.zk.watch(data=[PATH] * (not absent), exists=[PATH] * absent, since_zxid=since)
    c.gate.check()
    if isinstance(found, Malformed):
        c.malformed(found)
    else:
        _enter(c, found.pause)


def _enter(c: Controller, found: Pause | None) -> None:
    now_ms, before = wall_ms(), c.pauses.in_force
    pause = None if found == c.pauses.over else found
    if pause is not None and pause != before and not pause.holds(now_ms):  # one that holds ends by its timer alone
        pause = None
    c.pauses.in_force = pause
    if pause is not None and pause != before:
        cause = f" ({pause.reason})" if pause.reason else ""
        log.warning(
            "automatic moves are paused by %s%s: no balance, no wave of plans and drains; regent resume ends it",
            pause.principal or "an operator",
            cause,
        )
        if pause.until_ms:
            c.spawn(_end_later(c, pause, pause.left_ms(now_ms) / 1000))
    if pause is None and before is not None:
        log.info("automatic moves go on")


async def _end_later(c: Controller, pause: Pause, seconds: float) -> None:
    await asyncio.sleep(seconds)
    c.pauses.over = pause
    c.queue.signal(EventKind.PAUSE_CHANGE)
