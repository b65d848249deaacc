"""Chooses the IBP of a term: the setting, or the lowest that live brokers sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs.sections import ControllerSettings
from controller.kafka.path.adoption import Answer, ibp_of_term, lowest_ibp, recalled, to_keep
from controller.role.own_znodes import BROKER_SETTINGS, ROOT
from metadata_store import paths
from metadata_store.port import ANY_VERSION
from tests.kit.kafka.role import kafka

IBP = "inter.broker.protocol.version"


def test_the_lowest_known_ibp_is_adopted() -> None:
    assert str(lowest_ibp(["3.9-IV0", None, "2.8", "9.9", ""])) == "2.8-IV1"
    assert lowest_ibp([None, "soon"]) is None


def test_settings_kept_by_an_earlier_release_are_known_and_queried_again() -> None:
    kept = to_keep({1: Answer(7, {IBP: "2.8-IV1"}), 2: Answer(9, {IBP: "2.8-IV1"})})
    assert {b: (a.epoch, a.told[IBP]) for b, a in recalled(kept).items()} == {1: (7, "2.8-IV1"), 2: (9, "2.8-IV1")}
    fewer = b'{"names":["inter.broker.protocol.version"],"values":[["2.8-IV1"]],"brokers":{"1":[7,0]}}'
    assert recalled(fewer) == {1: Answer(-1, {IBP: "2.8-IV1"})}


@pytest.mark.parametrize(
    ("kept", "set_", "expected"),
    [
        ({1: "2.8-IV1", 2: "3.2-IV0", 3: "3.2-IV0"}, None, "2.8-IV1"),
        ({1: "3.2-IV0", 9: "2.4-IV1"}, None, "3.2-IV0"),
        ({9: "2.4-IV1"}, None, "2.4-IV1"),
        ({}, None, "3.9-IV0"),
        (None, None, "3.9-IV0"),
        ({1: "2.8-IV1"}, "3.6", "3.6-IV2"),
    ],
)
async def test_a_term_begins_at_the_set_ibp_or_the_kept_one_of_live_brokers(
    tmp_path: Path, kept: dict[int, str] | None, set_: str | None, expected: str
) -> None:
    async with kafka(tmp_path) as cluster:
        await cluster.operator.create(ROOT, b"")
        data = b"{" if kept is None else to_keep({b: Answer(1, {IBP: ibp}) for b, ibp in kept.items()})
        await cluster.operator.create(BROKER_SETTINGS, data)
        settings = ControllerSettings() if set_ is None else ControllerSettings(ibp=set_)
        assert str(await ibp_of_term(cluster.operator, settings)) == expected


async def test_a_take_over_keeps_the_settings_of_the_brokers_for_the_next_term(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        for broker in cluster.brokers.values():
            broker.configs |= {IBP: "2.8-IV1", "delete.topic.enable": "false"}
        for _ in range(2):
            await cluster.take_over()
            node = await cluster.operator.get(BROKER_SETTINGS)
            assert node is not None
            found = recalled(node.data or b"")
            assert {b: a.epoch for b, a in found.items()} == {b: m.epoch for b, m in cluster.brokers.items()}
            assert {a.told["delete.topic.enable"] for a in found.values()} == {"false"}
            assert str(await ibp_of_term(cluster.operator, ControllerSettings())) == "2.8-IV1"
            await cluster.operator.set("/regent/role", b'{"holder":"brokers"}', ANY_VERSION)
        assert await cluster.operator.exists(paths.CONTROLLER_EPOCH) is not None
