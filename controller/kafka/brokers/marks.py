"""Follows what operators mark: cordoned and drained brokers, and the pause of automatic moves.

regent places no replica on cordoned brokers, and elects drained ones last. During a pause the balance, and waves of
plans and drains, stand still; elections never do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from controller.kafka.path.controller import Controller
from controller.kafka.path.events import EventKind
from controller.kafka.requests.calls import PendingUndrain
from controller.process.clock import wall_ms
from metadata_store.codecs.base import MalformedNode
from metadata_store.errors import ZkError
from metadata_store.nodes.cordon_node import BROKERS_MAX, Cordons, Marks, read_cordons, undrained, write_cordons
from metadata_store.nodes.cordon_node import PATH as CORDONS
from metadata_store.nodes.pause_node import PATH as PAUSE
from metadata_store.nodes.pause_node import Pause, read_pause
from state_machines.model.facts import MarksRead

log = logging.getLogger("regent.controller")

ROUNDS_MAX: Final = 5
"""How often the marks are read and written while other clients write them."""


async def cordon_change(c: Controller) -> None:
    """Reads the marks and watches them; marks that are not understood leave those before in force."""
    since = c.zk.last_zxid
    found = await read_cordons(c.zk)
    absent = not isinstance(found, MalformedNode) and found.znode_version is None
    await c.zk.watch(data=[CORDONS] * (not absent), exists=[CORDONS] * absent, since_zxid=since)
    c.gate.check()
    if isinstance(found, MalformedNode):
        c.malformed(found)
    else:
        enter_marks(c, found)


def enter_marks(c: Controller, found: Cordons) -> None:
    """Enters marks that ZooKeeper has."""
    before, were, now = c.cluster.cordoned, c.cluster.drained, found.drained
    c.enter(MarksRead(found.brokers, now))
    _say(c.cluster.cordoned - before, "are cordoned: new replicas are placed on others")
    _say(before - c.cluster.cordoned, "are no longer cordoned")
    _say(now - were, "are drained: others lead wherever they can")
    _say(were - now, "are no longer drained: the automatic balance gives them leaders again")


async def change_marks(c: Controller, change: Callable[[Marks], Marks]) -> str | None:
    """Changes the marks, in ZooKeeper and then in the model; returns why that failed, None where it did not.

    Raises Fenced, NotConnected, OutcomeUnknown and TermEnded; repeated, it changes nothing that stands already.
    """
    for _ in range(ROUNDS_MAX):
        await c.connected()
        found = await c.until_read(partial(read_cordons, c.zk))
        if isinstance(found, MalformedNode):
            return f"{found.path} cannot be understood: {found.why}"
        wanted = Cordons(change(found.brokers), found.znode_version)
        if len(wanted.brokers) > BROKERS_MAX:
            return f"{len(wanted.brokers)} brokers would be cordoned, at most {BROKERS_MAX} may be: uncordon some"
        try:
            stands = wanted.brokers == found.brokers or await write_cordons(c.zk, c.fence, wanted)
        except ZkError as error:
            return f"{CORDONS} cannot be written ({error.code.name}): check its ACL"
        c.gate.check()
        if stands:
            enter_marks(c, wanted)
            return None
    return f"other clients write {CORDONS} all the time"


async def undrain_call(c: Controller, pending: PendingUndrain) -> None:
    """Removes the drains of brokers. No procedure begins to drain one between the check and the write: one event."""
    why_not = pending.call.why_not()
    if why_not is None:
        why_not = await change_marks(c, partial(undrained, brokers=pending.call.brokers))
    pending.answer(why_not)


def _say(brokers: Iterable[int], state: str) -> None:
    if found := sorted(brokers):
        log.info("brokers %s %s", found, state)


async def pause_change(c: Controller) -> None:
    """Reads the pause and watches it; one that is not understood leaves the one before in force."""
    since = c.zk.last_zxid
    found = await read_pause(c.zk)
    absent = not isinstance(found, MalformedNode) and found.znode_version is None
    await c.zk.watch(data=[PAUSE] * (not absent), exists=[PAUSE] * absent, since_zxid=since)
    c.gate.check()
    if isinstance(found, MalformedNode):
        c.malformed(found)
    else:
        _enter_pause(c, found.pause)


def _enter_pause(c: Controller, found: Pause | None) -> None:
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
            c.spawn(_end_pause_later(c, pause, pause.left_ms(now_ms) / 1000))
    if pause is None and before is not None:
        log.info("automatic moves go on")


async def _end_pause_later(c: Controller, pause: Pause, seconds: float) -> None:
    await asyncio.sleep(seconds)
    c.pauses.over = pause
    c.queue.signal(EventKind.PAUSE_CHANGE)
