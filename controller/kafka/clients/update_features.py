"""Handles UpdateFeatures (KIP-584): deletes finalised features; none can be added, because brokers support none."""

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
from controller.kafka.path.controller import Controller
from controller.kafka.requests.call_results import call_result
from controller.kafka.requests.caller import caller_of
from controller.kafka.requests.calls import PendingCarried
from controller.procedures.recorder import CallKind
from controller.process.wording import abbreviate
from metadata_store import paths
from metadata_store.codecs.base import Malformed
from metadata_store.errors import NotConnected, OutcomeUnknown
from metadata_store.nodes.cluster_nodes import Contended, delete_features, read_features
from state_machines.admin_rules.feature_updates import LevelWanted, UpgradeType, refusal

SWITCHED_OFF: Final = "Feature versioning system is disabled."

log = logging.getLogger("regent.controller")


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
        rider = await record.rider(result or "")
        try:
            await delete_features(c.zk, gone, c.fence, () if rider is None else (rider,))
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
