"""UpdateFeatures and AlterUserScramCredentials in a term: what they become, and what brokers are told of them."""

from __future__ import annotations

from typing import Any

import pytest

from brokers.wire.errors import Error
from brokers.wire.messages.security import (
    FeatureUpdate,
    ScramDeletion,
    ScramUpsertion,
    UpdateFeaturesRequest,
)
from metadata_store import paths
from metadata_store.codecs.cluster import (
    Config,
    FeatureRange,
    Features,
    decode_config,
    decode_features,
    encode_features,
)
from metadata_store.errors import OutcomeUnknown
from state_machines.admin_rules.credentials import Salted, credential
from tests.kit.deadlines import in_virtual_time
from tests.kit.kafka.calls import SALT, SALTED_PENCIL, SHA_256, SHA_512, carried, scram, upsert
from tests.kit.kafka.world import KafkaWorld, in_world, world

OLD = Features(2, True, {"old": FeatureRange(3), "other": FeatureRange(1)}, {"note": "kept"})


async def finalised(w: KafkaWorld, features: Features = OLD) -> None:
    await w.operator.create(paths.FEATURE, encode_features(features))


def found(w: KafkaWorld) -> Features:
    node = w.node(paths.FEATURE)
    assert node is not None
    features = decode_features(paths.FEATURE, node.data)
    assert isinstance(features, Features)
    return features


async def asked(w: KafkaWorld, *updates: FeatureUpdate, attempt: int = 0, validate_only: bool = False) -> Any:
    return await carried(w, UpdateFeaturesRequest(10_000, updates, validate_only), attempt=attempt)


@in_world(before=finalised)
async def test_a_finalised_feature_is_deleted_and_everything_else_kept(w: KafkaWorld) -> None:
    await w.begin_term()
    answer = await asked(w, FeatureUpdate("old", 0, upgrade_type=2))
    assert (answer.error_code, [(r.feature, r.error_code) for r in answer.results]) == (0, [("old", 0)])
    assert (found(w).features, found(w).unknown) == ({"other": FeatureRange(1)}, {"note": "kept"})
    again = await asked(w, FeatureUpdate("old", 0, upgrade_type=2), attempt=1)
    assert [r.error_code for r in again.results] == [0]
    late = await asked(w, FeatureUpdate("old", 0, upgrade_type=2))
    assert [r.error_code for r in late.results] == [Error.INVALID_REQUEST]


@in_world(before=finalised)
async def test_validation_writes_nothing(w: KafkaWorld) -> None:
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
async def test_a_refused_feature_update_has_a_reason(w: KafkaWorld, update: FeatureUpdate, why: str) -> None:
    await w.begin_term()
    [result] = (await asked(w, update)).results
    assert (result.error_code, why in result.error_message) == (Error.INVALID_REQUEST, True)
    assert found(w).features == OLD.features


@in_world(before=finalised)
async def test_features_that_another_client_adds_in_between_are_kept(w: KafkaWorld) -> None:
    await w.begin_term()

    async def meanwhile() -> None:
        more = Features(2, True, {**OLD.features, "new": FeatureRange(1)}, OLD.unknown)
        await w.operator.set(paths.FEATURE, encode_features(more), -1)

    w.active.script.at(paths.FEATURE, meanwhile)
    await asked(w, FeatureUpdate("old", 0, upgrade_type=2))
    assert found(w).features.keys() == {"other", "new"}


@in_world()
async def test_below_ibp_2_7_there_are_no_features(w: KafkaWorld) -> None:
    await w.begin_term("2.6-IV0")
    answer = await asked(w, FeatureUpdate("old", 0, upgrade_type=2))
    assert (answer.error_code, answer.results) == (Error.INVALID_REQUEST, ())


@in_world()
async def test_a_znode_that_cannot_be_understood_is_left(w: KafkaWorld) -> None:
    await w.operator.create(paths.FEATURE, b"{")
    await w.begin_term()
    answer = await asked(w, FeatureUpdate("old", 0, upgrade_type=2))
    assert (answer.error_code, paths.FEATURE in answer.error_message) == (Error.FEATURE_UPDATE_FAILED, True)


async def altered(w: KafkaWorld, *wanted: ScramUpsertion | ScramDeletion, attempt: int = 0) -> dict[str, int]:
    answer: Any = await carried(w, scram(*wanted), attempt=attempt)
    return {one.user: int(one.error_code) for one in answer.results}


def settings(w: KafkaWorld, user: str) -> dict[str, str]:
    path = paths.config("users", user)
    node = w.node(path)
    assert node is not None
    found = decode_config(path, node.data)
    assert isinstance(found, Config)
    return found.entries


def test_credentials_are_those_of_the_rfc() -> None:
    """RFC 7677: user "user", password "pencil"."""
    assert credential(Salted(4_096, SALT, SALTED_PENCIL), "sha256") == (
        "salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=,"
        "server_key=wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=,iterations=4096"
    )


@in_world()
async def test_credentials_are_set_kept_beside_quotas_and_deleted(w: KafkaWorld) -> None:
    await w.configure("users", "bob", producer_byte_rate="1024")
    await w.begin_term()
    told = len(w.notifications())
    assert await altered(w, upsert("al ice"), upsert("bob", SHA_512)) == {"al ice": 0, "bob": 0}
    assert settings(w, "al%20ice").keys() == {"SCRAM-SHA-256"}
    assert settings(w, "bob").keys() == {"producer.byte.rate", "SCRAM-SHA-512"}
    new = w.notifications()[told:]
    assert [b"users/al%20ice" in new[0], b"users/bob" in new[1], len(new)] == [True, True, 2]
    assert await altered(w, ScramDeletion("bob", SHA_512)) == {"bob": 0}
    assert settings(w, "bob") == {"producer.byte.rate": "1024"}


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ([upsert("")], 93),
        ([upsert("u", iterations=4_095)], 93),
        ([upsert("u", iterations=16_385)], 93),
        ([upsert("u", 0)], 33),
        ([ScramDeletion("u", 3)], 33),
        ([upsert("u"), upsert("u")], 92),
        ([upsert("u"), ScramDeletion("u", SHA_256)], 92),
        ([ScramDeletion("u", SHA_256)], 91),
        ([upsert("u", SHA_512), ScramDeletion("u", SHA_256)], 91),
    ],
)
@in_world()
async def test_one_wrong_credential_refuses_its_user_alone(w: KafkaWorld, wanted: list[Any], error: int) -> None:
    await w.begin_term()
    user = wanted[0].name
    assert await altered(w, *wanted, upsert("good")) == {user: error, "good": 0}
    assert w.node(paths.config("users", "u")) is None
    assert settings(w, "good")


@pytest.mark.parametrize("when", ["before", "after"])
@in_virtual_time
async def test_a_write_whose_reply_is_lost_is_found_again_or_repeated(when: str) -> None:
    def lost() -> None:
        raise OutcomeUnknown("the reply is lost")

    async with world() as w:
        await w.begin_term()
        assert await altered(w, upsert("u")) == {"u": 0}
        told = len(w.notifications())
        w.active.script.at(paths.config("users", "u"), lost, when=when)
        assert await altered(w, ScramDeletion("u", SHA_256)) == {"u": 0}
        assert settings(w, "u") == {}
        assert len(w.notifications()) == told + 1


@in_world()
async def test_a_repeated_call_is_not_refused_for_its_earlier_attempt(w: KafkaWorld) -> None:
    await w.begin_term()
    await altered(w, upsert("u"))
    assert await altered(w, ScramDeletion("u", SHA_256)) == {"u": 0}
    assert await altered(w, ScramDeletion("u", SHA_256), attempt=1) == {"u": 0}
    assert await altered(w, ScramDeletion("u", SHA_256)) == {"u": 91}


@in_world()
async def test_settings_that_cannot_be_understood_are_left(w: KafkaWorld) -> None:
    await w.operator.create(paths.config("users", "u"), b"{")
    await w.begin_term()
    assert await altered(w, upsert("u")) == {"u": -1}
    node = w.node(paths.config("users", "u"))
    assert node is not None
    assert node.data == b"{"
