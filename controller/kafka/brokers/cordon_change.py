"""Follows the marks of brokers: regent places no replica on cordoned ones, and elects drained ones last."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from controller.kafka.path.controller import Controller
from controller.kafka.requests.calls import PendingUndrain
from metadata_store.codecs.base import Malformed
from metadata_store.errors import ZkError
from metadata_store.nodes.cordon_node import BROKERS_MAX, PATH, Cordons, Marks, read_cordons, undrained, write_cordons
from state_machines.model.facts import MarksRead

ROUNDS_MAX: Final = 5
"""How often the marks are read and written while other clients write them."""

log = logging.getLogger("regent.controller")


async def cordon_change(c: Controller) -> None:
    """Reads the marks and watches them; marks that are not understood leave those before in force."""
    since = c.zk.last_zxid
    found = await read_cordons(c.zk)
    absent = not isinstance(found, Malformed) and found.znode_version is None
    await c.zk.watch(data=[PATH] * (not absent), exists=[PATH] * absent, since_zxid=since)
    c.gate.check()
    if isinstance(found, Malformed):
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
        if isinstance(found, Malformed):
            return f"{found.path} cannot be understood: {found.why}"
        wanted = Cordons(change(found.brokers), found.znode_version)
        if len(wanted.brokers) > BROKERS_MAX:
            return f"{len(wanted.brokers)} brokers would be cordoned, at most {BROKERS_MAX} may be: uncordon some"
        try:
            stands = wanted.brokers == found.brokers or await write_cordons(c.zk, c.fence, wanted)
        except ZkError as error:
            return f"{PATH} cannot be written ({error.code.name}): check its ACL"
        c.gate.check()
        if stands:
            enter_marks(c, wanted)
            return None
    return f"other clients write {PATH} all the time"


async def undrain_call(c: Controller, pending: PendingUndrain) -> None:
    """Removes the drains of brokers. No procedure begins to drain one between the check and the write: one event."""
    why_not = pending.call.why_not()
    if why_not is None:
        why_not = await change_marks(c, partial(undrained, brokers=pending.call.brokers))
    pending.answer(why_not)


def _say(brokers: Iterable[int], state: str) -> None:
    if found := sorted(brokers):
        log.info("brokers %s %s", found, state)
