"""Configurations that a topic inherits from its brokers, as responses to CreateTopics show them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from brokers.client import BrokerCallFailed
from brokers.wire.versions import Ibp
from controller.kafka.topics.configurations import ASK_S_MAX, PAUSE_S, UNSETTLED_S, DefaultConfigs
from state_machines.admin_rules.inherited_configs import BROKER_SETTINGS, SYNONYMS, Setting, inherited
from state_machines.admin_rules.topic_configs import TOPIC_CONFIGS, as_shown
from state_machines.model.types import Broker
from tests.kit.kafka.calls import carried, create, topic
from tests.kit.kafka.world import KafkaWorld, in_world

STATIC, DEFAULT = 4, 5
LONG_MAX = str(2**63 - 1)
PLAIN = {
    "min.insync.replicas": Setting("2", STATIC),
    "log.retention.ms": Setting(None, DEFAULT),
    "log.retention.minutes": Setting(None, DEFAULT),
    "log.retention.hours": Setting("168", DEFAULT),
}


class Brokers:
    """Stands for live brokers: ``silent`` ones never respond, ``away`` ones cannot be reached."""

    def __init__(self) -> None:
        self.settings: dict[str, Setting] = dict(PLAIN)
        self.queried: list[int] = []
        self.silent: set[int] = set()
        self.away: set[int] = set()
        self.api_versions: Mapping[int, tuple[int, int]] = {1: (0, 17)}

    @asynccontextmanager
    async def query(self, broker: Broker) -> AsyncIterator[Any]:
        self.queried.append(broker.id)
        if broker.id in self.away:
            raise BrokerCallFailed("cannot be reached")
        if broker.id in self.silent:
            await asyncio.sleep(3_600)
        yield self

    async def broker_settings(self, broker_id: int, names: Iterable[str] | None = None) -> dict[str, Setting]:
        assert names is not None
        assert set(self.settings) <= set(names), "only needed settings are queried"
        return dict(self.settings)


async def serving(w: KafkaWorld, ibp: str = "3.9") -> Brokers:
    """Begins a term whose controller queries ``Brokers``."""
    await w.serve(ibp)
    brokers, c = Brokers(), w.term.controller
    w.term.parts = w.term.parts._replace(configs=DefaultConfigs(c.cluster, brokers.query, Ibp.parse(ibp)))
    return brokers


def shown(response: Any, *names: str) -> list[tuple[str | None, int]]:
    [made] = response.topics
    configs = {config.name: (config.value, config.config_source) for config in made.configs}
    return [configs[name] for name in names]


# -- the table


def test_every_configuration_of_a_topic_has_a_default() -> None:
    known = {name: Setting("1", DEFAULT) for name in BROKER_SETTINGS}
    assert set(inherited(known, is_3_9=True)) == set(TOPIC_CONFIGS)


def test_an_older_broker_has_fewer_configurations() -> None:
    known = {name: Setting("1", DEFAULT) for name in BROKER_SETTINGS if "local" not in name and "level" not in name}
    found = inherited(known, is_3_9=False)
    assert not [name for name in found if "local" in name or "remote" in name or "level" in name]
    assert found["leader.replication.throttled.replicas"] == Setting("", DEFAULT)


@pytest.mark.parametrize(
    ("known", "value"),
    [
        ({}, "604800000"),
        ({"log.retention.minutes": Setting("5", STATIC)}, "300000"),
        ({"log.retention.ms": Setting("7", STATIC), "log.retention.minutes": Setting("5", STATIC)}, "7"),
        ({"log.retention.hours": Setting("-1", STATIC)}, "-1"),
    ],
)
def test_the_first_synonym_with_a_value_counts(known: dict[str, Setting], value: str) -> None:
    assert inherited(PLAIN | known, is_3_9=True)["retention.ms"].value == value


def test_a_source_is_that_of_the_first_synonym() -> None:
    """A broker shows DEFAULT_CONFIG where only its hours are set."""
    found = inherited(PLAIN | {"log.retention.hours": Setting("1", STATIC)}, is_3_9=True)
    assert found["retention.ms"] == Setting("3600000", DEFAULT)


def test_the_older_bound_of_time_stamps_counts_where_the_newer_was_left_alone() -> None:
    names = [f"log.message.timestamp.{end}.max.ms" for end in ("before", "after", "difference")]
    known = dict(zip(names, (Setting(LONG_MAX, DEFAULT), Setting("9", STATIC), Setting("5", STATIC)), strict=True))
    found = inherited(known, is_3_9=True)
    assert found["message.timestamp.before.max.ms"] == Setting("5", DEFAULT)
    assert found["message.timestamp.after.max.ms"] == Setting("9", STATIC)


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("preallocate", " TRUE ", "true"),
        ("cleanup.policy", "compact , delete", "compact,delete"),
        ("retention.ms", " +0100", "100"),
        ("min.cleanable.dirty.ratio", "1", "1.0"),
        ("compression.type", " lz4", "lz4"),
        ("leader.replication.throttled.replicas", "0:1, 1:2", "0:1,1:2"),
    ],
)
def test_a_value_is_shown_as_brokers_read_it(name: str, value: str, read: str) -> None:
    assert as_shown(name, value) == read


def test_no_setting_is_named_twice() -> None:
    assert len(set(BROKER_SETTINGS)) == len(BROKER_SETTINGS)
    assert set(SYNONYMS) < set(TOPIC_CONFIGS)


# -- responses


@pytest.mark.parametrize("validate_only", [False, True])
@in_world()
async def test_a_response_has_own_and_inherited_configurations(w: KafkaWorld, validate_only: bool) -> None:
    await serving(w)
    response = await carried(w, create(topic("t", 1, 1, retention_ms="0100"), validate_only=validate_only))
    assert shown(response, "min.insync.replicas", "retention.ms") == [("2", STATIC), ("100", 1)]
    [made] = response.topics
    assert (made.topic_config_error_code, made.num_partitions, made.replication_factor) == (0, 1, 1)
    assert not any(config.read_only or config.is_sensitive for config in made.configs)


@in_world()
async def test_a_broker_is_queried_once_for_each_registration(w: KafkaWorld) -> None:
    brokers = await serving(w)
    for name in ("a", "b", "c"):
        await carried(w, create(topic(name, 1, 1)))
    assert brokers.queried == [1]
    await w.bounce(1)
    await w.settle()
    brokers.settings["min.insync.replicas"] = Setting("1", STATIC)
    assert shown(await carried(w, create(topic("d", 1, 1))), "min.insync.replicas") == [("1", STATIC)]
    assert brokers.queried == [1, 1]


@in_world()
async def test_a_changed_default_is_queried_again_until_the_broker_has_it(w: KafkaWorld) -> None:
    brokers = await serving(w)
    await carried(w, create(topic("a", 1, 1)))
    await w.configure("brokers", "<default>", min_insync_replicas="3")
    await w.settle()
    for name in ("b", "bb", "bbb"):
        assert shown(await carried(w, create(topic(name, 1, 1))), "min.insync.replicas") == [("2", STATIC)]
    assert len(brokers.queried) == 2, "not once for each topic"
    await asyncio.sleep(UNSETTLED_S)
    brokers.settings["min.insync.replicas"] = Setting("3", 3)
    assert shown(await carried(w, create(topic("c", 1, 1))), "min.insync.replicas") == [("3", 3)]
    await asyncio.sleep(PAUSE_S)
    await carried(w, create(topic("d", 1, 1)))
    assert len(brokers.queried) == 4
    await carried(w, create(topic("e", 1, 1)))
    assert len(brokers.queried) == 4


@in_world()
async def test_the_next_broker_is_queried_where_one_does_not_respond(w: KafkaWorld) -> None:
    brokers = await serving(w)
    brokers.silent.add(1)
    brokers.away.add(2)
    assert shown(await carried(w, create(topic("t", 1, 1))), "min.insync.replicas") == [("2", STATIC)]
    assert brokers.queried == [1, 2, 3]


@in_world()
async def test_a_response_without_any_broker_has_an_error_in_time(w: KafkaWorld) -> None:
    brokers = await serving(w)
    brokers.silent.update((1, 2, 3))
    before_s = asyncio.get_running_loop().time()
    [made] = (await carried(w, create(topic("t", 1, 1)))).topics
    assert (made.error_code, made.topic_config_error_code, made.configs, made.num_partitions) == (0, 8, (), 1)
    took_s = asyncio.get_running_loop().time() - before_s
    assert took_s < 3 * ASK_S_MAX + 0.5
    [made] = (await carried(w, create(topic("u", 1, 1)))).topics
    assert made.topic_config_error_code == 8
    assert len(brokers.queried) == 3, "for a while no broker is queried again"


@in_world()
async def test_the_queue_goes_on_while_a_broker_is_queried(w: KafkaWorld) -> None:
    brokers = await serving(w)
    brokers.silent.update((1, 2, 3))
    waiting = asyncio.create_task(carried(w, create(topic("t", 1, 1))))
    await w.settle()
    before_s = asyncio.get_running_loop().time()
    assert (await w.producer_ids(2)).error == 0
    assert asyncio.get_running_loop().time() - before_s < 0.5
    assert not waiting.done()
    await waiting


@in_world()
async def test_a_client_of_a_version_without_configurations_queries_no_broker(w: KafkaWorld) -> None:
    brokers = await serving(w)
    await carried(w, create(topic("t", 1, 1)), version=4)
    assert brokers.queried == []


@pytest.mark.parametrize(("ibp", "shows"), [("3.9", "3.0-IV1"), ("2.8", "2.8-IV1")])
@in_world()
async def test_the_format_of_messages_follows_from_the_ibp(w: KafkaWorld, ibp: str, shows: str) -> None:
    brokers = await serving(w, ibp)
    brokers.settings["log.message.format.version"] = Setting("2.8", STATIC)
    response = await carried(w, create(topic("t", 1, 1)))
    assert shown(response, "message.format.version") == [(shows, STATIC)]
