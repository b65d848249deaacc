"""What the checks of a preflight look at: read once, before the first of them."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from msgspec import Struct

from brokers.client import BrokerCallFailed, ClusterMetadata
from brokers.queries import BrokerQueries, Dial, query_each
from brokers.wire.versions import Ibp
from configs.settings import Settings
from controller.engine.adopted_ibp import given, lowest
from controller.process.zookeeper_tls import ReleaseOf
from controller.role.claim import Role
from controller.role.own_znodes import Process
from metadata_store.codecs.base import Malformed
from metadata_store.kafka_store import KafkaStore
from metadata_store.port import ZooKeeper
from state_machines.admin_rules.broker_settings import NAMES
from state_machines.model.types import Broker, TopicAssignment

T = TypeVar("T")

IBP: Final = "inter.broker.protocol.version"
INTER_BROKER_LISTENER: Final = "inter.broker.listener.name"
INTER_BROKER_PROTOCOL: Final = "security.inter.broker.protocol"
CONTROL_PLANE_LISTENER: Final = "control.plane.listener.name"
AUTHORIZER: Final = "authorizer.class.name"
SUPER_USERS: Final = "super.users"
ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"
MIGRATION: Final = "zookeeper.metadata.migration.enable"
SET_ACL: Final = "zookeeper.set.acl"
PRINCIPAL_BUILDER: Final = "principal.builder.class"
CONTROLLER_TIMEOUT: Final = "controller.socket.timeout.ms"
RESERVED_MAX_ID: Final = "reserved.broker.max.id"

CONFIGS: Final = (
    IBP, INTER_BROKER_LISTENER, INTER_BROKER_PROTOCOL, CONTROL_PLANE_LISTENER, AUTHORIZER, SUPER_USERS, MIGRATION,
    ALLOW_EVERYONE, SET_ACL, PRINCIPAL_BUILDER, CONTROLLER_TIMEOUT, RESERVED_MAX_ID, *NAMES,
)  # fmt: skip
"""Settings that every live broker is asked for."""


class BrokerFacts(Struct, frozen=True):
    """What one broker answered; a question that failed has the reason as its answer."""

    api_versions: Mapping[int, tuple[int, int]]
    configs: Mapping[str, str | None] | BrokerCallFailed
    metadata: ClusterMetadata | BrokerCallFailed
    log_dirs: Mapping[str, int] | BrokerCallFailed


class Context(Struct, frozen=True):
    """``own_listener``: whether the daemon's own listener is up in this process and must answer."""

    settings: Settings
    role: Role
    store: KafkaStore
    ibp: Ibp
    release_of: ReleaseOf
    own_listener: bool
    brokers: Mapping[int, Broker]
    topics: Sequence[TopicAssignment]
    malformed: Sequence[Malformed]
    daemons: Sequence[Process]
    answers: Mapping[int, BrokerFacts | BrokerCallFailed]

    @property
    def zk(self) -> ZooKeeper:
        """The session."""
        return self.role.zk

    def answered(self) -> dict[int, BrokerFacts]:
        """Brokers that could be asked at all; the others are a refusal of their own."""
        return {broker: found for broker, found in self.answers.items() if isinstance(found, BrokerFacts)}

    def configs(self) -> dict[int, Mapping[str, str | None]]:
        """Settings by broker, where the broker told them."""
        return {b: a.configs for b, a in self.answered().items() if not isinstance(a.configs, BrokerCallFailed)}

    def with_config(self, name: str, *values: str) -> list[int]:
        """Brokers on which a setting has one of ``values``."""
        return [b for b, found in self.configs().items() if (found.get(name) or "").lower() in values]


async def gather(settings: Settings, role: Role, dial: Dial, release_of: ReleaseOf, *, own_listener: bool) -> Context:
    """Reads ZooKeeper and asks every live broker."""
    await role.zk.sync()
    store = KafkaStore(role.zk)
    registered = await store.load_brokers()
    malformed = list(registered.malformed)
    topics: list[TopicAssignment] = []
    for found in await store.load_topics():
        if isinstance(found, Malformed):
            malformed.append(found)
        elif found is not None:
            topics.append(found)
    names = (*CONFIGS, listener_builder(settings))
    answers = await query_each(dial, registered.brokers, partial(_interview, names))
    return Context(
        settings=settings,
        role=role,
        store=store,
        ibp=_ibp(settings, answers.values()),
        release_of=release_of,
        own_listener=own_listener,
        brokers=registered.brokers,
        topics=topics,
        malformed=malformed,
        daemons=[process for _, process in await role.queue() if process is not None],
        answers=answers,
    )


def _ibp(settings: Settings, answers: Iterable[BrokerFacts | BrokerCallFailed]) -> Ibp:
    """The one at which the daemon will be in office."""
    configs = [found.configs for found in answers if isinstance(found, BrokerFacts)]
    told = [found.get(IBP) for found in configs if not isinstance(found, BrokerCallFailed)]
    adopted = None if given(settings.controller) else lowest(told)
    return adopted or Ibp.parse(settings.controller.ibp)


def listener_builder(settings: Settings) -> str:
    """The setting by which brokers have a class of its own on the listener of clients; its value they do not tell."""
    return f"listener.name.{settings.admin.client_listener.lower()}.{PRINCIPAL_BUILDER}"


async def _interview(names: Sequence[str], queries: BrokerQueries, broker: Broker) -> BrokerFacts:
    return BrokerFacts(
        dict(queries.api_versions),
        await _or_failure(queries.static_configs(broker.id, names)),
        await _or_failure(queries.metadata(())),
        await _or_failure(queries.log_dirs()),
    )


async def _or_failure(answer: Awaitable[T]) -> T | BrokerCallFailed:
    try:
        return await answer
    except BrokerCallFailed as failed:
        return failed
