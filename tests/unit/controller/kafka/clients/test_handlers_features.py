"""UpdateFeatures in a term: what is finalised may go, nothing new may come."""

from __future__ import annotations

from typing import Any

import pytest

from brokers.wire.errors import Error
from brokers.wire.messages.security import FeatureUpdate, UpdateFeaturesRequest
from metadata_store import paths
from metadata_store.codecs.features import FeatureRange, Features, decode_features, encode_features
from tests.kit.carried_kit import carried
from tests.kit.controller_world import World, in_world

OLD = Features(2, True, {"old": FeatureRange(3), "other": FeatureRange(1)}, {"note": "kept"})


async def finalised(w: World, features: Features = OLD) -> None:
    await w.operator.create(paths.FEATURE, encode_features(features))


def found(w: World) -> Features:
    node = w.node(paths.FEATURE)
    assert node is not None
    features = decode_features(paths.FEATURE, node.data)
    assert isinstance(features, Features)
    return features


async def asked(w: World, *updates: FeatureUpdate, attempt: int = 0, validate_only: bool = False) -> Any:
    return await carried(w, UpdateFeaturesRequest(10_000, updates, validate_only), attempt=attempt)


@in_world(before=finalised)
async def test_a_finalised_feature_is_deleted_and_everything_else_kept(w: World) -> None:
    await w.begin_term()
    answer = await asked(w, FeatureUpdate("old", 0, upgrade_type=2))
    assert (answer.error_code, [(r.feature, r.error_code) for r in answer.results]) == (0, [("old", 0)])
    assert (found(w).features, found(w).unknown) == ({"other": FeatureRange(1)}, {"note": "kept"})
    again = await asked(w, FeatureUpdate("old", 0, upgrade_type=2), attempt=1)
    assert [r.error_code for r in again.results] == [0]
    late = await asked(w, FeatureUpdate("old", 0, upgrade_type=2))
    assert [r.error_code for r in late.results] == [Error.INVALID_REQUEST]


@in_world(before=finalised)
async def test_validation_writes_nothing(w: World) -> None:
    await w.begin_term()
    zxid = w.server.tree.zxid
    answer = await asked(w, FeatureUpdate("old", 0, allow_downgrade=True), validate_only=True)
    assert [r.error_code for r in answer.results] == [0]
    assert w.server.tree.zxid == zxid


@pytest.mark.parametrize(
    ("update", "why"),
    [
        (FeatureUpdate("", 1), "can not be empty"),
        (FeatureUpdate("old", 2, upgrade_type=0), "unknown upgrade type"),
        (FeatureUpdate("old", 0), "without setting the allowDowngrade flag"),
        (FeatureUpdate("never", 0, upgrade_type=3), "non-existing"),
        (FeatureUpdate("metadata.version", 7), "not supported"),
    ],
)
@in_world(before=finalised)
async def test_a_refused_feature_update_has_a_reason(w: World, update: FeatureUpdate, why: str) -> None:
    await w.begin_term()
    [result] = (await asked(w, update)).results
    assert (result.error_code, why in result.error_message) == (Error.INVALID_REQUEST, True)
    assert found(w).features == OLD.features


@in_world(before=finalised)
async def test_features_that_another_client_adds_in_between_are_kept(w: World) -> None:
    await w.begin_term()

    async def meanwhile() -> None:
        more = Features(2, True, {**OLD.features, "new": FeatureRange(1)}, OLD.unknown)
        await w.operator.set(paths.FEATURE, encode_features(more), -1)

    w.active.script.at(paths.FEATURE, meanwhile)
    await asked(w, FeatureUpdate("old", 0, upgrade_type=2))
    assert found(w).features.keys() == {"other", "new"}


@in_world()
async def test_below_ibp_2_7_there_are_no_features(w: World) -> None:
    await w.begin_term("2.6-IV0")
    answer = await asked(w, FeatureUpdate("old", 0, upgrade_type=2))
    assert (answer.error_code, answer.results) == (Error.INVALID_REQUEST, ())


@in_world()
async def test_a_znode_that_cannot_be_understood_is_left(w: World) -> None:
    await w.operator.create(paths.FEATURE, b"{")
    await w.begin_term()
    answer = await asked(w, FeatureUpdate("old", 0, upgrade_type=2))
    assert (answer.error_code, paths.FEATURE in answer.error_message) == (Error.FEATURE_UPDATE_FAILED, True)
