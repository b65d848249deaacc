"""Reads and writes dynamic configurations of entities with their notifications, also rates of mutations (KIP-599).

Kafka writes the configuration first and the notification after it. Here both are one multi, so that brokers are
notified of every configuration.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final
from urllib.parse import quote, unquote

from msgspec import Struct

from metadata_store import paths
from metadata_store.codecs.base import MalformedNode
from metadata_store.codecs.cluster import DEFAULT_ENTITY, Config, decode_config, encode_config
from metadata_store.codecs.notifications import encode_config_change
from metadata_store.errors import Code, NotConnected, ZkError
from metadata_store.fencing.bounds import Emit, Job, in_flight
from metadata_store.fencing.companion import Companion
from metadata_store.fencing.fenced import Batch, Write, batches, write
from metadata_store.fencing.outcome import Fence, MultiOutcome
from metadata_store.port import IN_FLIGHT_MAX, Create, Node, Op, SetData, ZooKeeper
from metadata_store.reads import unreadable
from state_machines.admin_rules.mutation_quotas import EVERY, Level

PER_TURN: Final = 1_000
"""Configurations that are read together."""


class EntityConfig(Struct, frozen=True):
    """The configuration of an entity; ``version`` None: it has no znode."""

    config: Config
    version: int | None


class ConfigChange(Struct, frozen=True):
    """A new configuration of an entity; ``version`` is that of the replaced znode, None where there is none."""

    name: str
    config: Config
    version: int | None


ConfigOutcome = MultiOutcome[ConfigChange, str]


def znode_name(name: str) -> str:
    """Returns an entity's name as brokers write it into a path (Kafka ``Sanitizer``)."""
    return quote(name, safe="").replace("~", "%7E")


async def read_entities(zk: ZooKeeper, kind: str, names: Sequence[str]) -> dict[str, EntityConfig | MalformedNode]:
    """Reads configurations of entities of one kind, by name, after ``sync``; raises ``NotConnected``."""
    await zk.sync("/")
    wanted = [paths.config(kind, znode_name(name)) for name in names]
    nodes = await zk.read_many(wanted)
    return {name: _entity(path, node) for name, path, node in zip(names, wanted, nodes, strict=True)}


async def find_entities(zk: ZooKeeper, kind: str, word: bytes) -> dict[str, EntityConfig | MalformedNode]:
    """Reads the configurations of one kind in whose znodes a word stands, by name; raises ``NotConnected``."""
    parent = f"{paths.CONFIG}/{kind}"
    try:
        listed = await zk.children(parent)
    except ZkError as error:
        why = unreadable(parent, error.code)
        return {} if why is None else {"": why}
    names = sorted(listed[0]) if listed is not None else []
    found: dict[str, EntityConfig | MalformedNode] = {}
    for start in range(0, len(names), PER_TURN):
        some = names[start : start + PER_TURN]
        wanted = [paths.config(kind, name) for name in some]
        for name, path, node in zip(some, wanted, await zk.read_many(wanted), strict=True):
            if not isinstance(node, Node):
                if (why := unreadable(path, node)) is not None:
                    found[unquote(name)] = why
            elif word in (node.data or b""):
                found[unquote(name)] = _entity(path, node)
    return found


def _entity(path: str, node: Node | Code) -> EntityConfig | MalformedNode:
    if isinstance(node, Node):
        config = decode_config(path, node.data)
        return config if isinstance(config, MalformedNode) else EntityConfig(config, node.stat.version)
    return unreadable(path, node) or EntityConfig(Config({}), None)


async def commit_entities(
    zk: ZooKeeper,
    kind: str,
    changes: Iterable[ConfigChange],
    fence: Fence,
    companions: Mapping[str, Companion] | None = None,
) -> ConfigOutcome:
    """Writes configurations; a write that was not sent because the connection was lost counts as a conflict.

    ``companions``: by entity. Raises ``Fenced``.
    """
    total: ConfigOutcome = MultiOutcome()
    writes = [(change.name, change, _ops(kind, change)) for change in changes]
    try:
        async for outcome in in_flight(_jobs(zk, fence, writes, total, companions), IN_FLIGHT_MAX):
            total.add(outcome)
    except NotConnected:
        settled = {change.name for change in total.applied} | {name for name, _ in total.refused}
        settled.update(total.conflicts, total.gone, total.unknown)
        total.conflicts += [name for name, _, _ in writes if name not in settled]
    return total


def _ops(kind: str, change: ConfigChange) -> tuple[Op, ...]:
    name = znode_name(change.name)
    path, data = paths.config(kind, name), encode_config(change.config.entries, change.config.unknown)
    notification = Create(paths.CONFIG_CHANGE_PREFIX, encode_config_change(f"{kind}/{name}"), sequential=True)
    return Create(path, data) if change.version is None else SetData(path, data, change.version), notification


def _jobs(
    zk: ZooKeeper,
    fence: Fence,
    writes: Iterable[Write[str, ConfigChange]],
    total: ConfigOutcome,
    companions: Mapping[str, Companion] | None,
) -> Iterator[Job[ConfigOutcome]]:
    for batch in batches(writes, total.refused, zk.request_bytes_max, companions=companions):
        yield partial(_write, zk, fence, batch)


async def _write(zk: ZooKeeper, fence: Fence, batch: Batch[ConfigChange, str], emit: Emit[ConfigOutcome]) -> None:
    emit(await write(zk, fence, batch))


RATE: Final = "controller_mutation_rate"


def quota_path(level: Level) -> str:
    """Returns ``/config/users/U``, ``/config/users/U/clients/C`` or ``/config/clients/C``."""
    if level.user is None:
        return paths.config("clients", _name(level.client))
    if level.client is None:
        return paths.config("users", _name(level.user))
    return paths.config("users", f"{_name(level.user)}/clients/{_name(level.client)}")


def _name(name: str | None) -> str:
    return DEFAULT_ENTITY if name == EVERY else znode_name(name or "")


async def read_rates(zk: ZooKeeper, levels: Iterable[Level]) -> tuple[dict[Level, float], list[MalformedNode]]:
    """Reads the rates that are set, and the znodes that cannot be used; raises ``NotConnected``.

    Without ``sync``: a server that is behind fires the watch of ``/config/changes`` once it has caught up.
    """
    wanted = list(levels)
    rates: dict[Level, float] = {}
    malformed: list[MalformedNode] = []
    for level, node in zip(wanted, await zk.read_many([quota_path(level) for level in wanted]), strict=True):
        rate = _rate(quota_path(level), node)
        if isinstance(rate, MalformedNode):
            malformed.append(rate)
        elif rate is not None:
            rates[level] = rate
    return rates, malformed


def _rate(path: str, node: Node | Code) -> float | MalformedNode | None:
    if not isinstance(node, Node):
        return unreadable(path, node)
    config = decode_config(path, node.data)
    if isinstance(config, MalformedNode):
        return config
    text = config.entries.get(RATE)
    if text is None:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    return rate if 0 <= rate < math.inf else MalformedNode(path, f"{RATE} is {text!r}: give partitions a second")
