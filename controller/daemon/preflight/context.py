"""Reads the facts that the checks of a preflight share, once before the first check, and words their findings."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Final, TypeVar

from msgspec import Struct

from brokers.client import BrokerCallFailed, ClusterMetadata
from brokers.queries import BrokerQueries, Dial, query_each
from brokers.wire.versions import Ibp
from configs.settings import Settings
from controller.kafka.path.adoption import ibp_is_set, lowest_ibp
from controller.process.zookeeper import ReleaseOf
from controller.role.claim import Role
from controller.role.own_znodes import Process
from metadata_store.codecs.base import MalformedNode
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
"""Settings that are queried from every live broker."""


class BrokerFacts(Struct, frozen=True):
    """One broker's responses; a failed query has its reason instead."""

    api_versions: Mapping[int, tuple[int, int]]
    configs: Mapping[str, str | None] | BrokerCallFailed
    metadata: ClusterMetadata | BrokerCallFailed
    log_dirs: Mapping[str, int] | BrokerCallFailed


class Context(Struct, frozen=True):
    """State of ZooKeeper and brokers. ``own_listener``: whether this process runs the daemon's listener."""

    settings: Settings
    role: Role
    store: KafkaStore
    ibp: Ibp
    release_of: ReleaseOf
    own_listener: bool
    brokers: Mapping[int, Broker]
    topics: Sequence[TopicAssignment]
    malformed: Sequence[MalformedNode]
    daemons: Sequence[Process]
    responses: Mapping[int, BrokerFacts | BrokerCallFailed]

    @property
    def zk(self) -> ZooKeeper:
        """Returns the ZooKeeper session."""
        return self.role.zk

    def responding(self) -> dict[int, BrokerFacts]:
        """Returns the responses by broker; a check of its own refuses brokers without any."""
        return {broker: found for broker, found in self.responses.items() if isinstance(found, BrokerFacts)}

    def configs(self) -> dict[int, Mapping[str, str | None]]:
        """Returns the settings by broker, where their query succeeded."""
        return {b: a.configs for b, a in self.responding().items() if not isinstance(a.configs, BrokerCallFailed)}

    def with_config(self, name: str, *values: str) -> list[int]:
        """Returns the brokers on which a setting has one of ``values``."""
        return [b for b, found in self.configs().items() if (found.get(name) or "").lower() in values]


async def gather(settings: Settings, role: Role, dial: Dial, release_of: ReleaseOf, *, own_listener: bool) -> Context:
    """Reads ZooKeeper and queries every live broker."""
    await role.zk.sync()
    store = KafkaStore(role.zk)
    registered = await store.load_brokers()
    malformed = list(registered.malformed)
    topics: list[TopicAssignment] = []
    for found in await store.load_topics():
        if isinstance(found, MalformedNode):
            malformed.append(found)
        elif found is not None:
            topics.append(found)
    names = (*CONFIGS, listener_builder(settings))
    responses = await query_each(dial, registered.brokers, partial(_facts_of, names))
    return Context(
        settings=settings,
        role=role,
        store=store,
        ibp=_ibp(settings, responses.values()),
        release_of=release_of,
        own_listener=own_listener,
        brokers=registered.brokers,
        topics=topics,
        malformed=malformed,
        daemons=[process for _, process in await role.queue() if process is not None],
        responses=responses,
    )


def _ibp(settings: Settings, responses: Iterable[BrokerFacts | BrokerCallFailed]) -> Ibp:
    """Returns the IBP at which the daemon will be active."""
    configs = [found.configs for found in responses if isinstance(found, BrokerFacts)]
    known = [found.get(IBP) for found in configs if not isinstance(found, BrokerCallFailed)]
    adopted = None if ibp_is_set(settings.controller) else lowest_ibp(known)
    return adopted or Ibp.parse(settings.controller.ibp)


def listener_builder(settings: Settings) -> str:
    """Returns the name of the client listener's own principal builder setting; brokers do not send its value."""
    return f"listener.name.{settings.admin.client_listener.lower()}.{PRINCIPAL_BUILDER}"


async def _facts_of(names: Sequence[str], queries: BrokerQueries, broker: Broker) -> BrokerFacts:
    return BrokerFacts(
        dict(queries.api_versions),
        await _or_failure(queries.static_configs(broker.id, names)),
        await _or_failure(queries.metadata(())),
        await _or_failure(queries.log_dirs()),
    )


async def _or_failure(response: Awaitable[T]) -> T | BrokerCallFailed:
    try:
        return await response
    except BrokerCallFailed as failed:
        return failed


class Level(StrEnum):
    """Result of a check; only a refusal prevents a take-over."""

    OK = "ok"
    WARNING = "warning"
    REFUSED = "refused"


class Finding(Struct, frozen=True):
    """The result of one check: its sentence and, unless the level is OK, the remedy."""

    name: str
    level: Level
    text: str
    remedy: str = ""


class PreflightReport(Struct, frozen=True):
    """All findings, in the order of the checks."""

    findings: Sequence[Finding]

    @property
    def refusals(self) -> list[Finding]:
        """Returns the findings that prevent a take-over."""
        return [finding for finding in self.findings if finding.level is Level.REFUSED]

    @property
    def warnings(self) -> list[Finding]:
        """Returns the findings that do not."""
        return [finding for finding in self.findings if finding.level is Level.WARNING]

    def sentence(self) -> str:
        """Returns all refusals in one line, or the number of passed checks."""
        if not self.refusals:
            return f"{len(self.findings)} checks passed, {len(self.warnings)} of them with a warning"
        return "; ".join(f"{f.name}: {f.text} (remedy: {f.remedy})" for f in self.refusals)


def ok(name: str, text: str) -> Finding:
    """Creates a finding without a problem."""
    return Finding(name, Level.OK, text)


def warn(name: str, text: str, remedy: str) -> Finding:
    """Creates a finding that an operator should know before a take-over."""
    return Finding(name, Level.WARNING, text, remedy)


def refuse(name: str, text: str, remedy: str) -> Finding:
    """Creates a finding that prevents a take-over."""
    return Finding(name, Level.REFUSED, text, remedy)
