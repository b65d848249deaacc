"""Finds the throttle settings that stand in ZooKeeper, and the procedures that own them.

A setting without an owner was left by ``bypass``, by a daemon whose records were removed, or by another tool.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from controller.kafka.kinds.throttle_holders import throttles_of
from controller.kafka.kinds.throttle_settings import Failed, Found
from metadata_store.codecs.base import Malformed
from metadata_store.nodes.entity_configs import find_entities
from metadata_store.port import ZooKeeper
from state_machines.admin_rules.throttles import BROKERS, LISTS, RATES, TOPICS, Entity, Place
from state_machines.procedures.record import Record

DIRECTORIES_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
"""Rate of moves between the directories of a broker."""
SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {BROKERS: (*RATES, DIRECTORIES_RATE), TOPICS: LISTS}
"""Settings that throttle, by kind of entity."""
_WORD: Final[Mapping[str, bytes]] = {BROKERS: b"", TOPICS: b"throttled.replicas"}
"""Word in the znodes that are looked into: a cluster has many topics, of which few are throttled."""


class Standing(NamedTuple):
    """A throttle setting as it stands in ZooKeeper."""

    entity: Entity
    setting: str
    value: str

    @property
    def place(self) -> Place:
        """Returns the setting without its value."""
        return self.entity, self.setting


async def find_throttled(zk: ZooKeeper, kinds: Collection[str] = (BROKERS, TOPICS)) -> tuple[Found, Failed]:
    """Reads the configurations that throttle anything, and those that cannot be read; raises ``NotConnected``."""
    found: Found = {}
    failed: Failed = {}
    for kind in kinds:
        for name, one in (await find_entities(zk, kind, _WORD[kind])).items():
            if isinstance(one, Malformed):
                failed[Entity(kind, name)] = f"{one.path} cannot be used: {one.why}"
            elif kind == TOPICS or name.isdecimal():  # the default of all brokers throttles none
                found[Entity(kind, name)] = one
    return found, failed


def settings_in(found: Found) -> Iterator[Standing]:
    """Yields the throttle settings of configurations; an empty list throttles nothing."""
    for entity in sorted(found):
        yield from settings_of(entity, found[entity].config.entries)


def settings_of(entity: Entity, entries: Mapping[str, str]) -> Iterator[Standing]:
    """Yields the throttle settings of one configuration."""
    for setting in SETTINGS[entity.kind]:
        if value := entries.get(setting, "").strip():
            yield Standing(entity, setting, value)


def owners(live: Iterable[Record]) -> dict[Place, Record]:
    """Returns the procedure that holds each setting."""
    return {(one.entity, one.setting): record for record in live for one in throttles_of(record)}
