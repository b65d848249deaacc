"""Expires delegation tokens: the active controller deletes expired ones (KIP-48; ``expireTokens``).

A task beside the queue reads the tokens, so that no broker waits for that. The deletion of expired ones goes through
the queue, as all writes of a term. A look keeps no state for the next: one children read where there are no tokens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from controller.kafka.path.controller import Controller
from controller.kafka.path.event_kinds import EventKind
from controller.kafka.path.event_queue import Event, QueueFull
from controller.process.wall_clock import wall_ms
from controller.process.wording import abbreviate
from metadata_store import paths
from metadata_store.codecs.base import Malformed
from metadata_store.errors import ZkError, ZooKeeperError
from metadata_store.fencing.fenced import WRITES_MAX
from metadata_store.nodes.delegation_tokens import OPS, delete_tokens, read_tokens, token_ids
from state_machines.admin_rules.delegation_tokens import Token, expired

FIRST_LOOK_S: Final = 5.0
"""From the begin of a term to the first look: a failover has more urgent things to read."""
RETRY_S: Final = 30.0
"""Pause before a look that ZooKeeper interrupted is tried again; shorter where looks are closer together."""
TOKENS_MAX: Final = 1_000
"""Tokens that are read, and deleted, in one turn."""

log = logging.getLogger("regent.controller")


def begin(c: Controller) -> None:
    """Schedules the first look of a term."""
    if c.adoption.values.token_check_s > 0:
        c.spawn(_looks(c))


async def _looks(c: Controller) -> None:
    pause_s = min(FIRST_LOOK_S, c.adoption.values.token_check_s)
    while True:
        await asyncio.sleep(pause_s)
        try:
            await _look(c)
            pause_s = c.adoption.values.token_check_s
        except (ZooKeeperError, QueueFull) as error:
            log.debug("expired delegation tokens are looked for later: %s", error)
            pause_s = min(RETRY_S, c.adoption.values.token_check_s)


async def _look(c: Controller) -> None:
    since = c.zk.last_zxid
    try:
        ids = await token_ids(c.zk)
    except ZkError as error:
        c.malformed(Malformed(paths.DELEGATION_TOKENS, f"cannot be listed ({error.code.name}): check its ACL"))
        return
    for at in range(0, len(ids), TOKENS_MAX):
        found = await read_tokens(c.zk, ids[at : at + TOKENS_MAX])
        malformed = [token for token in found if isinstance(token, Malformed)]
        if malformed:
            await c.zk.watch(data=[token.path for token in malformed], since_zxid=since)
        for bad in malformed:
            c.malformed(bad)
        now = wall_ms()  # brokers set the expiry of tokens by their wall clock
        ended = tuple(token for token in found if isinstance(token, Token) and expired(token, now))
        if ended:
            c.queue.post(Event(EventKind.EXPIRED_TOKENS, ended))


async def expired_tokens(c: Controller, ended: Sequence[Token]) -> None:
    """Deletes tokens in the version that was read; one renewed meanwhile stays, and holds none of the others up."""
    left, done = ended, 0
    for ops_max in (WRITES_MAX, OPS):
        await c.connected()
        outcome = await delete_tokens(c.zk, left, c.fence, ops_max=ops_max)
        c.gate.check()
        done += len(outcome.applied)
        if outcome.refused:
            refused = abbreviate(sorted(name for name, _ in outcome.refused))
            log.error("expired delegation tokens stay, ZooKeeper refused to delete them: check their ACLs: %s", refused)
        left = [token for token in left if token.id in outcome.unsettled]
        if not left:
            break
    if done:
        log.info("%d delegation tokens have expired and are deleted", done)
