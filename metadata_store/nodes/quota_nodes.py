"""Reads rates of controller mutations (KIP-599) where ``kafka-configs`` and AlterClientQuotas write them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from metadata_store import paths
from metadata_store.codecs.base import Malformed
from metadata_store.codecs.config import DEFAULT_ENTITY, decode_config
from metadata_store.errors import Code
from metadata_store.nodes.entity_configs import znode_name
from metadata_store.port import Node, ZooKeeper
from metadata_store.reads import unreadable
from state_machines.admin_rules.mutation_quotas import EVERY, Level

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


async def read_rates(zk: ZooKeeper, levels: Iterable[Level]) -> tuple[dict[Level, float], list[Malformed]]:
    """Reads the rates that are set, and the znodes that cannot be used; raises ``NotConnected``.

    Without ``sync``: a server that is behind fires the watch of ``/config/changes`` once it has caught up.
    """
    wanted = list(levels)
    rates: dict[Level, float] = {}
    malformed: list[Malformed] = []
    for level, node in zip(wanted, await zk.read_many([quota_path(level) for level in wanted]), strict=True):
        rate = _rate(quota_path(level), node)
        if isinstance(rate, Malformed):
            malformed.append(rate)
        elif rate is not None:
            rates[level] = rate
    return rates, malformed


def _rate(path: str, node: Node | Code) -> float | Malformed | None:
    if not isinstance(node, Node):
        return unreadable(path, node)
    config = decode_config(path, node.data)
    if isinstance(config, Malformed):
        return config
    text = config.entries.get(RATE)
    if text is None:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    return rate if 0 <= rate < math.inf else Malformed(path, f"{RATE} is {text!r}: give partitions a second")
