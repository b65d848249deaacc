"""Handles AlterUserScramCredentials (KIP-554): writes settings of users so that every broker notices."""

from __future__ import annotations

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
from controller.kafka.requests.call_results import call_result
from controller.kafka.requests.caller import caller_of
from controller.kafka.requests.calls import PendingCarried
from controller.procedures.recorder import CallKind, CallRecord
from controller.process.wording import abbreviate
from metadata_store.codecs.base import Malformed
from metadata_store.codecs.config import Config
from metadata_store.errors import Code
from metadata_store.nodes.entity_configs import ConfigChange, EntityConfig, commit_entities, read_entities
from state_machines.admin_rules.scram_credentials import Alteration, Salted, ScramError, ScramRefusal, altered, sort_out

USERS: Final = "users"
CONTENDED: Final = ScramRefusal(
    ScramError.REQUEST_TIMED_OUT, "others write to the user's settings all the time: try again"
)

log = logging.getLogger("regent.controller")

Waiting = dict[str, list[Alteration]]


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
            rider = await self._record.rider(self._result() or "")
            riders = dict.fromkeys(waiting, rider) if rider is not None else None
            outcome = await commit_entities(c.zk, USERS, changes, c.fence, riders)
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
