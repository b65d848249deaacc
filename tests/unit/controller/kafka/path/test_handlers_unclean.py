"""Unclean elections by configuration: asked of ZooKeeper when an election depends on it (S4-82)."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest

from metadata_store import paths
from metadata_store.kafka_store import KafkaStore
from tests.kit.deadlines import in_virtual_time
from tests.kit.kafka.world import KafkaWorld, in_world, world

LOST, ELECTED = (-1, (1,)), (2, (2,))
DEFAULT = "<default>"


async def behind(w: KafkaWorld) -> None:
    """Broker 1 alone is in sync."""
    await w.topic("t", (1, 2), leaders=True, isr=(1,))
    await w.topic("u", (1, 2), leaders=True, isr=(1,))


async def allow(w: KafkaWorld, topic: str, value: str = "true") -> None:
    await w.configure("topics", topic, unclean_leader_election_enable=value)


async def allow_by_default(w: KafkaWorld, value: str = "true") -> None:
    await w.configure("brokers", DEFAULT, unclean_leader_election_enable=value)


async def without_leader(w: KafkaWorld) -> None:
    """Broker 1 is dead, and nothing else is in sync."""
    await behind(w)
    await w.begin_term()
    w.die(1)
    await w.propagated()


def led(w: KafkaWorld) -> dict[str, tuple[int, tuple[int, ...]]]:
    return {topic: found for (topic, _), found in w.leaders().items()}


@pytest.mark.kafka(
    "UncleanLeaderElectionTest.testUncleanLeaderElectionEnabled",
    "UncleanLeaderElectionTest.testUncleanLeaderElectionDisabled",
    "UncleanLeaderElectionTest.testUncleanLeaderElectionEnabledByTopicOverride",
    "UncleanLeaderElectionTest.testUncleanLeaderElectionDisabledByTopicOverride",
)
@pytest.mark.seed("S4-82")
@pytest.mark.parametrize("setting", [False, True])
@pytest.mark.parametrize("default", [None, "false", "true"])
@pytest.mark.parametrize("own", [None, "false", "TRUE ", "perhaps"])
@in_virtual_time
async def test_a_topics_permission_comes_before_the_default_and_that_before_the_setting(
    setting: bool, default: str | None, own: str | None
) -> None:
    async with world(unclean_leader_election_enable=setting) as w:
        await behind(w)
        if default is not None:
            await allow_by_default(w, default)
        if own is not None:
            await allow(w, "t", own)
        await w.begin_term()
        w.die(1)
        await w.propagated()
        by_default = setting if default is None else default == "true"
        allowed = by_default if own is None else own == "TRUE "
        assert led(w) == {"t": ELECTED if allowed else LOST, "u": ELECTED if by_default else LOST}
        assert w.counters.unclean_elections == allowed + by_default
        w.agreed()


@pytest.mark.seed("S4-82", "S4-85")
@in_world(before=behind)
async def test_an_unclean_election_is_one_write_marked_as_recovering(w: KafkaWorld) -> None:
    """No epoch is spent on the way: the permission is known before anything is written."""
    await allow(w, "t")
    await w.begin_term()
    w.die(1)
    await w.propagated()
    assert (w.states["t", 0].leader_epoch, w.states["t", 0].recovering) == (4, True)


@pytest.mark.seed("S4-82")
@in_world(before=behind)
async def test_a_term_reads_the_configurations_of_its_first_elections(w: KafkaWorld) -> None:
    await allow(w, "t")
    w.die(1)
    await w.begin_term()
    assert led(w) == {"t": ELECTED, "u": (-1, (1,))}
    assert w.counters.unclean_elections == 1


@pytest.mark.kafka("UncleanLeaderElectionTest.testTopicUncleanLeaderElectionEnableWithAlterTopicConfigs")
@pytest.mark.seed("S4-82")
@in_world(before=without_leader)
async def test_a_permission_at_run_time_elects_at_once(w: KafkaWorld) -> None:
    """UncleanLeaderElectionTest: by AlterConfigs on the topic, and on the brokers' default."""
    assert led(w) == {"t": LOST, "u": LOST}
    await allow(w, "t")
    await w.propagated()
    assert led(w) == {"t": ELECTED, "u": LOST}
    await w.configure("clients", "somebody", producer_byte_rate="1")
    await w.propagated()
    assert led(w) == {"t": ELECTED, "u": LOST}
    await allow_by_default(w)
    await w.propagated()
    assert led(w) == {"t": ELECTED, "u": ELECTED}
    assert w.counters.unclean_elections == 2


@pytest.mark.seed("S4-82")
@in_world(before=behind)
async def test_a_permission_that_was_taken_back_is_not_remembered(w: KafkaWorld) -> None:
    await allow(w, "t")
    await w.begin_term()
    w.die(1)
    await w.propagated()
    assert led(w)["t"] == ELECTED
    w.server.hold_watches(w.active.zk.session_id)
    await allow(w, "t", "false")
    await w.boot(1)
    w.die(2)
    w.server.release_watches(w.active.zk.session_id)
    await w.propagated()
    assert led(w)["t"] == (-1, (2,))


@pytest.mark.kafka("ControllerIntegrationTest.testLeaderAndIsrWhenEntireIsrOfflineAndUncleanLeaderElectionEnabled")
@pytest.mark.seed("S4-82")
@in_world(unclean_leader_election_enable=True)
async def test_no_configuration_is_read_where_a_clean_election_is_possible(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2), (2, 1), leaders=True)
    await w.topic("alone", (1,), leaders=True)
    with mock.patch.object(KafkaStore, "load_topic_configs", side_effect=AssertionError("asked")):
        await w.begin_term()
        w.die(1)
        await w.propagated()
        await w.bounce(2)
        await w.propagated()
    assert not w.term.gate.ended
    assert w.leaders() == {("t", 0): ELECTED, ("t", 1): ELECTED, ("alone", 0): (-1, (1,))}


@pytest.mark.seed("S4-82")
@in_world(unclean_leader_election_enable=True, before=behind)
async def test_a_malformed_configuration_allows_nothing_until_it_is_repaired(w: KafkaWorld) -> None:
    await w.operator.set(paths.topic_config("t"), b"{", -1)
    await w.begin_term()
    w.die(1)
    await w.propagated()
    assert led(w) == {"t": LOST, "u": ELECTED}
    assert list(w.counters.malformed) == [paths.topic_config("t")]
    await w.operator.set(paths.topic_config("t"), b'{"version":1,"config":{}}', -1)
    await w.propagated()
    assert led(w)["t"] == ELECTED, "it is watched"
    assert not w.counters.malformed


@pytest.mark.seed("S4-82")
@in_world(unclean_leader_election_enable=True, before=behind)
async def test_a_configuration_with_one_value_that_kafka_cannot_parse_allows_nothing_until_it_is_repaired(
    w: KafkaWorld,
) -> None:
    """The topic allows it in so many words, but another of its values is none: Kafka's controller elects nobody."""
    await w.configure("topics", "t", unclean_leader_election_enable="true", retention_ms="soon")
    await w.configure("topics", "u", unclean_leader_election_enable="true", vendor_key="soon")
    await w.begin_term()
    w.die(1)
    await w.propagated()
    assert led(w) == {"t": LOST, "u": ELECTED}, "a key that Kafka does not know is not parsed"
    path = paths.topic_config("t")
    assert w.counters.malformed[path].startswith("retention.ms = soon: give a whole number")
    await w.configure("topics", "t", unclean_leader_election_enable="true", retention_ms="7")
    await w.propagated()
    assert led(w)["t"] == ELECTED
    assert not w.counters.malformed


@pytest.mark.seed("S4-82")
@in_world(before=behind)
async def test_an_election_waits_for_a_connection_that_is_lost_while_it_reads_a_configuration(w: KafkaWorld) -> None:
    await allow(w, "t")
    await w.begin_term()
    really, asked = KafkaStore.load_topic_configs, 0

    async def cut(store: KafkaStore, names: list[str]) -> object:
        nonlocal asked
        asked += 1
        if asked == 1:
            w.server.reconnect(w.active.zk.session_id)
        return await really(store, names)

    with mock.patch.object(KafkaStore, "load_topic_configs", cut):
        w.die(1)
        await w.propagated()
    assert asked == 3, "again as it was cut off, and once more because connections bring news"
    assert led(w) == {"t": ELECTED, "u": LOST}
    w.agreed()


@pytest.mark.seed("S4-82")
@in_world(before=without_leader)
async def test_a_permission_while_suspended_elects_afterwards(w: KafkaWorld) -> None:
    w.server.suspend(w.active.zk.session_id)
    await allow(w, "t")
    await asyncio.sleep(1.0)
    assert led(w)["t"] == LOST
    w.server.resume(w.active.zk.session_id)
    await w.propagated()
    assert led(w) == {"t": ELECTED, "u": LOST}
