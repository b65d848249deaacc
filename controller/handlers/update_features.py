"""Handles UpdateFeatures (KIP-584): deletes finalised features; none can be added, because brokers support none."""

from __future__ import annotations

import logging
from typing import Final

from brokers.wire.errors import Error
from brokers.wire.messages.security import (
    FeatureUpdate,
    UpdatedFeature,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from controller.engine.controller import Controller
from controller.process.wording import abbreviate
from controller.requests.calls import PendingCarried
from metadata_store import paths
from metadata_store.codecs.base import Malformed
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
        pending.answer(await _update(c, body, again=pending.call.attempt > 0))
    except Contended as contended:
        pending.answer(UpdateFeaturesResponse((), Error.REQUEST_TIMED_OUT, f"{contended}: try again"))
    finally:
        pending.refuse()


async def _update(c: Controller, body: UpdateFeaturesRequest, *, again: bool) -> UpdateFeaturesResponse:
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
    if gone and not body.validate_only:
        await delete_features(c.zk, gone, c.fence)
        c.gate.check()
        log.info("finalised features are deleted, requested by an admin client: %s", abbreviate(gone))
    return UpdateFeaturesResponse(tuple(_outcome(name, why) for name, why in refused.items()))


def _wanted(update: FeatureUpdate) -> LevelWanted:
    upgrade_type = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
    return LevelWanted(update.feature, update.max_version_level, upgrade_type)


def _outcome(feature: str, why: str | None) -> UpdatedFeature:
    return UpdatedFeature(feature) if why is None else UpdatedFeature(feature, Error.INVALID_REQUEST, why)
