"""Handles calls about the whole cluster and about credentials, and expires delegation tokens (KIP-48).

The calls are AllocateProducerIds (S4-87; KIP-730), UpdateFeatures (KIP-584) and AlterUserScramCredentials (KIP-554). A
block of producer ids is never given out twice. Features are deleted alone: none can be added, because brokers support
none. SCRAM credentials are settings of users, written so that every broker notices.

A task beside the queue reads the tokens, so that no broker waits for that. The deletion of expired ones goes through
the queue, as all writes of a term. A look keeps no state for the next: one children read where there are no tokens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from brokers.listener.envelopes import CarriedCall
from brokers.wire.errors import Error
from brokers.wire.messages.security import (
    AlteredUser,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    FeatureUpdate,
    UpdatedFeature,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from brokers.wire.replies import AllocateProducerIdsReply
from controller.kafka.path.controller import Controller
from controller.kafka.path.events import Event, EventKind, QueueFull
from controller.kafka.requests.calls import PendingCarried, PendingProducerIds, call_result
from controller.kafka.requests.codec import caller_of
from controller.procedures.recorder import CallKind, CallRecord
from controller.process.clock import wall_ms
from controller.process.wording import abbreviate
from metadata_store import paths
from metadata_store.codecs.base import MalformedNode
from metadata_store.codecs.cluster import Config
from metadata_store.errors import Code, NotConnected, OutcomeUnknown, ZkError, ZooKeeperError
from metadata_store.fencing.fenced import WRITES_MAX
from metadata_store.nodes import cluster_nodes
from metadata_store.nodes.cluster_nodes import Contended, Exhausted, delete_features, read_features
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
from state_machines.admin_rules.feature_updates import LevelWanted, UpgradeType, refusal

log = logging.getLogger("regent.controller")

SWITCHED_OFF: Final = "Feature versioning system is disabled."
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


async def allocate_producer_ids(c: Controller, pending: PendingProducerIds) -> None:
    """Allocates one block per conditional write; it skips a block whose write has an unknown outcome."""
    call = pending.call
    broker = c.cluster.brokers.get(call.broker_id)
    if broker is None:
        pending.answer(AllocateProducerIdsReply(Error.BROKER_ID_NOT_REGISTERED))
        return
    if broker.epoch != call.broker_epoch:
        pending.answer(AllocateProducerIdsReply(Error.STALE_BROKER_EPOCH))
        return
    try:
        block = await cluster_nodes.allocate_producer_ids(c.zk, call.broker_id, c.fence)
        c.gate.check()
        if isinstance(block, MalformedNode):
            c.malformed(block)
            pending.answer(AllocateProducerIdsReply(Error.UNKNOWN_SERVER_ERROR))
            return
        c.counters.malformed.pop(paths.PRODUCER_IDS, None)
        pending.answer(AllocateProducerIdsReply(Error.NONE, block.start, block.end - block.start + 1))
    except Contended:
        pending.answer(AllocateProducerIdsReply(Error.REQUEST_TIMED_OUT))
    except Exhausted as exhausted:
        log.error("broker %d gets no producer ids: %s", call.broker_id, exhausted)
        pending.answer(AllocateProducerIdsReply(Error.UNKNOWN_SERVER_ERROR))
    finally:
        pending.refuse()


async def update_features(c: Controller, pending: PendingCarried) -> None:
    """Judges feature by feature, and deletes the allowed ones in one write; a repeated call finds them gone."""
    body = pending.call.body
    assert isinstance(body, UpdateFeaturesRequest)
    try:
        if not c.ibp.features_enabled:
            pending.answer(UpdateFeaturesResponse((), Error.INVALID_REQUEST, SWITCHED_OFF))
            return
        pending.answer(await _update(c, pending.call, body))
    except Contended as contended:
        pending.answer(UpdateFeaturesResponse((), Error.REQUEST_TIMED_OUT, f"{contended}: try again"))
    finally:
        pending.refuse()


async def _update(c: Controller, call: CarriedCall, body: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    again = call.attempt > 0
    found = await read_features(c.zk)
    c.gate.check()
    if found is None:
        return UpdateFeaturesResponse((), Error.FEATURE_UPDATE_FAILED, f"{paths.FEATURE} does not exist")
    if isinstance(found.value, MalformedNode):
        why = f"{paths.FEATURE} cannot be used: {found.value.why}"
        return UpdateFeaturesResponse((), Error.FEATURE_UPDATE_FAILED, why)
    finalised = found.value.features
    refused = {update.feature: refusal(_wanted(update), finalised, again=again) for update in body.feature_updates}
    gone = [name for name, why in refused.items() if why is None and name in finalised]
    if not body.validate_only:
        await _delete(c, call, gone, [name for name, why in refused.items() if why is None], len(refused))
    return UpdateFeaturesResponse(tuple(_outcome(name, why) for name, why in refused.items()))


async def _delete(c: Controller, call: CarriedCall, gone: list[str], allowed: list[str], named: int) -> None:
    """Deletes features, and records the call. ``allowed``: those, and others that an earlier attempt deleted."""
    record = c.recorder.call(CallKind.UPDATE_FEATURES, caller_of(call), again=call.attempt > 0)
    refused = [Error.INVALID_REQUEST] * (named - len(allowed))
    result = call_result("deleted", allowed, "finalised feature", refused) if allowed else None
    if gone:
        companion = await record.companion(result or "")
        try:
            await delete_features(c.zk, gone, c.fence, () if companion is None else (companion,))
        except (NotConnected, OutcomeUnknown):
            await record.close()
            raise
        c.gate.check()
        log.info("finalised features are deleted, requested by an admin client: %s", abbreviate(gone))
    await record.close(result, changed=bool(gone))


def _wanted(update: FeatureUpdate) -> LevelWanted:
    upgrade_type = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
    return LevelWanted(update.feature, update.max_version_level, upgrade_type)


def _outcome(feature: str, why: str | None) -> UpdatedFeature:
    return UpdatedFeature(feature) if why is None else UpdatedFeature(feature, Error.INVALID_REQUEST, why)


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
        c.malformed(MalformedNode(paths.DELEGATION_TOKENS, f"cannot be listed ({error.code.name}): check its ACL"))
        return
    for at in range(0, len(ids), TOKENS_MAX):
        found = await read_tokens(c.zk, ids[at : at + TOKENS_MAX])
        malformed = [token for token in found if isinstance(token, MalformedNode)]
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
        pending.answer(
            AlterUserScramCredentialsResponse(tuple(_scram_outcome(user, refused.get(user)) for user in users))
        )
    finally:
        pending.refuse()


def _asked(body: AlterUserScramCredentialsRequest) -> Iterable[Alteration]:
    for one in body.deletions:
        yield Alteration(one.name, one.mechanism, None)
    for new in body.upsertions:
        yield Alteration(new.name, new.mechanism, Salted(new.iterations, new.salt, new.salted_password))


def _scram_outcome(user: str, refused: ScramRefusal | None) -> AlteredUser:
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


async def _read(c: Controller, users: list[str]) -> dict[str, EntityConfig | MalformedNode]:
    return await c.until_read(partial(read_entities, c.zk, USERS, users)) if users else {}


def _judge(
    waiting: Waiting,
    found: dict[str, EntityConfig | MalformedNode],
    refused: dict[str, ScramRefusal],
    *,
    again: bool,
) -> list[ConfigChange]:
    changes: list[ConfigChange] = []
    for user, of_user in waiting.items():
        now = found[user]
        if isinstance(now, MalformedNode):
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
