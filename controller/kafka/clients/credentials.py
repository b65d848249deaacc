"""Handles clients' credentials: expires delegation tokens (KIP-48), and changes those of SCRAM (KIP-554).

A task beside the queue reads the tokens, so that no broker waits for that. The deletion of expired ones goes through
the queue, as all writes of a term. A look keeps no state for the next: one children read where there are no tokens.
SCRAM credentials are settings of users, written so that every broker notices.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from brokers.wire.messages.security import (
    AlteredUser,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from controller.kafka.path.controller import Controller
from controller.kafka.path.events import Event, EventKind, QueueFull
from controller.kafka.requests.calls import PendingCarried, call_result
from controller.kafka.requests.codec import caller_of
from controller.procedures.recorder import CallKind, CallRecord
from controller.process.clock import wall_ms
from controller.process.wording import abbreviate
from metadata_store import paths
from metadata_store.codecs.base import Malformed
from metadata_store.codecs.cluster import Config
from metadata_store.errors import Code, ZkError, ZooKeeperError
from metadata_store.fencing.fenced import WRITES_MAX
from metadata_store.nodes.delegation_tokens import OPS, delete_tokens, read_tokens, token_ids
from metadata_store.nodes.entity_configs import ConfigChange, EntityConfig, commit_entities, read_entities
from state_machines.admin_rules.credentials import (
    Alteration,
    Salted,
    ScramError,
    ScramRefusal,
    Token,
    altered,
    expired,
    sort_out,
)

log = logging.getLogger("regent.controller")

FIRST_LOOK_S: Final = 5.0
"""From the begin of a term to the first look: a failover has more urgent things to read."""
RETRY_S: Final = 30.0
"""Pause before a look that ZooKeeper interrupted is tried again; shorter where looks are closer together."""
TOKENS_MAX: Final = 1_000
"""Tokens that are read, and deleted, in one turn."""
USERS: Final = "users"
CONTENDED: Final = ScramRefusal(
    ScramError.REQUEST_TIMED_OUT, "others write to the user's settings all the time: try again"
)
Waiting = dict[str, list[Alteration]]


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


async def alter_scram_credentials(c: Controller, pending: PendingCarried) -> None:
    """Changes each user's credentials as a whole or not at all; after a foreign write in between it judges again."""
    body = pending.call.body
    assert isinstance(body, AlterUserScramCredentialsRequest)
    try:
        refused, waiting = sort_out(_asked(body))
        users = [*refused, *waiting]
        call = pending.call
        record = c.recorder.call(CallKind.ALTER_SCRAM_CREDENTIALS, caller_of(call), again=call.attempt > 0)
        alteration = _Altering(c, record, users, refused)
        await alteration.run(waiting, again=call.attempt > 0)
        done = [user for user in users if user not in refused]
        if done:
            log.info("SCRAM credentials of %d users are changed: %s", len(done), abbreviate(done))
        pending.answer(AlterUserScramCredentialsResponse(tuple(_outcome(user, refused.get(user)) for user in users)))
    finally:
        pending.refuse()


def _asked(body: AlterUserScramCredentialsRequest) -> Iterable[Alteration]:
    for one in body.deletions:
        yield Alteration(one.name, one.mechanism, None)
    for new in body.upsertions:
        yield Alteration(new.name, new.mechanism, Salted(new.iterations, new.salt, new.salted_password))


def _outcome(user: str, refused: ScramRefusal | None) -> AlteredUser:
    return AlteredUser(user) if refused is None else AlteredUser(user, int(refused.error), refused.why)


class _Altering:
    """Writes the changes of one call, and its record with them. ``refused``: of them nothing is written, and why."""

    def __init__(
        self, c: Controller, record: CallRecord, users: Sequence[str], refused: dict[str, ScramRefusal]
    ) -> None:
        self._c = c
        self._record = record
        self._users = users
        self._refused = refused

    async def run(self, waiting: Waiting, *, again: bool) -> None:
        """Writes until each user is changed or refused."""
        changed = await self._write(waiting, again=again)
        await self._record.close(self._result(), changed=changed)

    async def _write(self, waiting: Waiting, *, again: bool) -> bool:
        """Returns whether anything was written."""
        c, written = self._c, False
        for _ in c.conflict_rounds():
            changes = _judge(waiting, await _read(c, list(waiting)), self._refused, again=again)
            if not changes:
                return written
            companion = await self._record.companion(self._result() or "")
            companions = dict.fromkeys(waiting, companion) if companion is not None else None
            outcome = await commit_entities(c.zk, USERS, changes, c.fence, companions)
            c.gate.check()
            written = written or bool(outcome.applied or outcome.unknown)
            self._refused.update((user, _not_written(code)) for user, code in outcome.refused)
            waiting = {user: waiting[user] for user in outcome.unsettled | {*outcome.gone}}
            if not waiting:
                return written
            again = again or bool(outcome.unknown)
            await c.connected()
        self._refused.update(dict.fromkeys(waiting, CONTENDED))
        return written

    def _result(self) -> str | None:
        """Words whose credentials are changed, unless the rest of the call fails; None without any."""
        done = [user for user in self._users if user not in self._refused]
        errors = [refused.error for refused in self._refused.values()]
        return call_result("changed the SCRAM credentials of", done, "user", errors) if done else None


async def _read(c: Controller, users: list[str]) -> dict[str, EntityConfig | Malformed]:
    return await c.until_read(partial(read_entities, c.zk, USERS, users)) if users else {}


def _judge(
    waiting: Waiting,
    found: dict[str, EntityConfig | Malformed],
    refused: dict[str, ScramRefusal],
    *,
    again: bool,
) -> list[ConfigChange]:
    changes: list[ConfigChange] = []
    for user, of_user in waiting.items():
        now = found[user]
        if isinstance(now, Malformed):
            refused[user] = ScramRefusal(ScramError.UNKNOWN_SERVER_ERROR, f"{now.path} cannot be used: {now.why}")
            continue
        after = altered(now.config.entries, of_user, again=again)
        if isinstance(after, ScramRefusal):
            refused[user] = after
        elif after != now.config.entries:
            changes.append(ConfigChange(user, Config(after, now.config.unknown), now.version))
    return changes


def _not_written(code: Code) -> ScramRefusal:
    why = f"ZooKeeper refused the write ({code.name}): check the ACL of the user's znode below /config/users"
    return ScramRefusal(ScramError.UNKNOWN_SERVER_ERROR, why)
