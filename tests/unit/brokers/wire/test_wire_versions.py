"""IBPs: the accepted ones, their order, and the request versions that follow."""

from __future__ import annotations

import pytest

from brokers.wire.versions import DEFAULT, LOWEST, Ibp, UnknownIbp, accepted


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("3.9", "3.9-IV0"),
        ("3.9-IV0", "3.9-IV0"),
        ("2.7", "2.7-IV2"),
        ("2.7-IV1", "2.7-IV1"),
        ("2.4", "2.4-IV1"),
        ("2.8", "2.8-IV1"),
        ("3.3", "3.3-IV3"),
    ],
)
def test_a_short_string_means_the_last_internal_version(text: str, full: str) -> None:
    assert str(Ibp.parse(text)) == full


def test_accepted_values_read_back_and_are_ordered_by_age() -> None:
    parsed = [Ibp.parse(text) for text in accepted()]
    assert [str(ibp) for ibp in parsed] == accepted()
    assert parsed == sorted(parsed)
    assert (parsed[0], parsed[-1]) == (LOWEST, DEFAULT)


@pytest.mark.parametrize(
    "text", ["", "3", "3.10", "4.0", "4.0-IV0", "2.4-IV0", "2.3", "3.9-IV1", "3.9-IV", "3.9-IV00", "3.9-iv0", " 3.9 x"]
)
def test_an_unknown_value_is_refused_with_the_list_of_accepted_ones(text: str) -> None:
    with pytest.raises(UnknownIbp) as refused:
        Ibp.parse(text)
    assert repr(text) in str(refused.value)
    assert "2.4-IV1, 2.5-IV0" in str(refused.value)
    assert "3.9-IV0" in str(refused.value)


@pytest.mark.kafka(
    "ControllerChannelManagerTest.testLeaderAndIsrInterBrokerProtocolVersion",
    "ControllerChannelManagerTest.testUpdateMetadataInterBrokerProtocolVersion",
    "ControllerChannelManagerTest.testStopReplicaInterBrokerProtocolVersion",
)
@pytest.mark.seed("S4-85")
@pytest.mark.parametrize(
    ("text", "leader_and_isr", "update_metadata", "stop_replica"),
    [
        ("2.4-IV1", 4, 6, 3),
        ("2.6-IV0", 4, 6, 3),
        ("2.8-IV0", 4, 6, 3),
        ("2.8-IV1", 5, 7, 3),
        ("3.1-IV0", 5, 7, 3),
        ("3.2-IV0", 6, 7, 3),
        ("3.3-IV3", 6, 7, 3),
        ("3.4-IV0", 7, 8, 4),
        ("3.9-IV0", 7, 8, 4),
    ],
)
def test_request_versions_follow_the_ibp(
    text: str, leader_and_isr: int, update_metadata: int, stop_replica: int
) -> None:
    ibp = Ibp.parse(text)
    versions = ibp.leader_and_isr_version, ibp.update_metadata_version, ibp.stop_replica_version
    assert versions == (leader_and_isr, update_metadata, stop_replica)


@pytest.mark.seed("S4-85")
@pytest.mark.parametrize(
    ("feature", "since"),
    [
        ("features_enabled", "2.7-IV0"),
        ("alter_partition", "2.7-IV2"),
        ("topic_ids", "2.8-IV0"),
        ("producer_ids", "3.0-IV0"),
        ("recovery_state", "3.2-IV0"),
    ],
)
def test_features_begin_at_their_ibp(feature: str, since: str) -> None:
    having = [text for text in accepted() if getattr(Ibp.parse(text), feature)]
    assert having == accepted()[accepted().index(since) :]


def test_the_feature_znode_has_its_second_form_from_3_3() -> None:
    assert [Ibp.parse(text).feature_znode_version for text in ("2.7-IV0", "3.2", "3.3-IV0", "3.9")] == [1, 1, 2, 2]
