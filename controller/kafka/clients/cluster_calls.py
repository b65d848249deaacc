"""Handles calls about znodes of the whole cluster: AllocateProducerIds (S4-87; KIP-730) and UpdateFeatures (KIP-584).

A block of producer ids is never given out twice. Features are deleted alone: none can be added, because brokers support
none.
"""

from __future__ import annotations

import logging
from typing import Final

from brokers.listener.envelopes import CarriedCall
from brokers.wire.errors import Error
from brokers.wire.messages.security import (
    FeatureUpdate,
    UpdatedFeature,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from brokers.wire.replies import AllocateProducerIdsReply
from controller.kafka.path.controller import Controller
from controller.kafka.requests.calls import PendingCarried, PendingProducerIds, call_result
from controller.kafka.requests.codec import caller_of
from controller.procedures.recorder import CallKind
from controller.process.wording import abbreviate
from metadata_store import paths
from metadata_store.codecs.base import Malformed
from metadata_store.errors import NotConnected, OutcomeUnknown
from metadata_store.nodes import cluster_nodes
from metadata_store.nodes.cluster_nodes import Contended, Exhausted, delete_features, read_features
from state_machines.admin_rules.feature_updates import LevelWanted, UpgradeType, refusal

log = logging.getLogger("regent.controller")

SWITCHED_OFF: Final = "Feature versioning system is disabled."


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
        if isinstance(block, Malformed):
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
    if isinstance(found.value, Malformed):
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
