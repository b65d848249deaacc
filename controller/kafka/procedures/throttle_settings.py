"""Reads, writes and finds the settings that throttle, and the procedures that hold them.

Configurations are written to ZooKeeper, where brokers that are down find them, too. A procedure's record is stored
before a setting is written, so it is the lock: two procedures never throttle one setting, and none takes the other's
value for the one to restore. A setting that no record names was left by ``bypass``, by a daemon whose records were
removed, or by another tool.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

import msgspec

from controller.kafka.path.controller import Controller
from metadata_store.codecs.base import MalformedNode
from metadata_store.codecs.cluster import Config
from metadata_store.nodes.entity_configs import (
    ConfigChange,
    EntityConfig,
    commit_entities,
    find_entities,
    read_entities,
)
from metadata_store.port import ZooKeeper
from state_machines.admin_rules.throttles import BROKERS, LISTS, RATES, TOPICS, Entity, Place, Throttle, restore
from state_machines.procedures.outcome import Retry
from state_machines.procedures.record import Record

log = logging.getLogger("regent.procedures")

Found = dict[Entity, EntityConfig]
Failed = dict[Entity, str]
"""Entities that could not be read or written, and why."""

REFUSED: Final = "ZooKeeper refused it"
ROUNDS_MAX: Final = 5
"""How often the rest of a transaction is written of which ZooKeeper refused some entities."""
THROTTLE: Final = "throttle"
REASSIGN: Final = "reassign"
DIRECTORIES_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
"""Rate of moves between the directories of a broker."""
SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {BROKERS: (*RATES, DIRECTORIES_RATE), TOPICS: LISTS}
"""Settings that throttle, by kind of entity."""
_WORD: Final[Mapping[str, bytes]] = {BROKERS: b"", TOPICS: b"throttled.replicas"}
"""Word in the znodes that are looked into: a cluster has many topics, of which few are throttled."""


# -- reading and writing


class Restored(NamedTuple):
    """The throttles whose former values could not be restored, why, and sentences on settings that others changed."""

    left: tuple[Throttle, ...]
    failed: Failed
    notes: tuple[str, ...]


async def restored(c: Controller, throttles: tuple[Throttle, ...]) -> Restored:
    """Gives every setting its former value, unless another client changed it."""
    found, failed = await read(c, {one.entity for one in throttles})
    wanted = restore([one for one in throttles if one.entity in found], entries(found))
    failed |= await write(c, wanted.writes, found)
    return Restored(tuple(one for one in throttles if one.entity in failed), failed, wanted.notes)


def retry(failed: Failed) -> Retry:
    """Returns the outcome that names the first failure."""
    entity, why = min(failed.items())
    return Retry(f"throttle of {entity}{f' and {len(failed) - 1} more' if len(failed) > 1 else ''}: {why}")


def say(notes: Iterable[str]) -> None:
    """Logs sentences on settings that stay as they are."""
    for note in notes:
        log.warning("throttle: %s", note)


def entries(found: Found) -> Mapping[Entity, Mapping[str, str]]:
    """Returns the settings by entity."""
    return {entity: one.config.entries for entity, one in found.items()}


async def read(c: Controller, entities: Iterable[Entity]) -> tuple[Found, Failed]:
    """Reads configurations."""
    found: Found = {}
    failed: Failed = {}
    for kind, names in _by_kind(entities).items():
        for name, config in (await c.until_read(partial(read_entities, c.zk, kind, names))).items():
            if isinstance(config, MalformedNode):
                failed[Entity(kind, name)] = f"{config.path} cannot be used: {config.why}"
            else:
                found[Entity(kind, name)] = config
    return found, failed


async def write(c: Controller, writes: Mapping[Entity, dict[str, str]], found: Found) -> Failed:
    """Writes whole configurations; those that ZooKeeper refuses keep no other one from being written."""
    failed: Failed = {}
    for kind, names in _by_kind(writes).items():
        changes: list[ConfigChange] = []
        for name in names:
            known = found[Entity(kind, name)]
            config = Config(writes[Entity(kind, name)], known.config.unknown)
            changes.append(ConfigChange(name, config, known.version))
        for _ in range(ROUNDS_MAX):
            await c.connected()
            outcome = await commit_entities(c.zk, kind, changes, c.fence)
            c.gate.check()
            refused = dict(outcome.refused)
            failed |= {Entity(kind, name): f"{REFUSED} ({code.name})" for name, code in refused.items()}
            written = {change.name for change in outcome.applied}
            changes = [change for change in changes if change.name not in written and change.name not in refused]
            if not changes or not refused:
                break
        failed |= {Entity(kind, change.name): "another client writes it, or the reply was lost" for change in changes}
    return failed


def _by_kind(entities: Iterable[Entity]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for kind, name in sorted(entities):
        found.setdefault(kind, []).append(name)
    return found


# -- the procedures that hold settings


class _Throttled(msgspec.Struct, frozen=True):
    """The throttles in the message of a plan, or of an operator's throttle, which is decoded without the rest."""

    throttles: tuple[Throttle, ...] = ()


_decoder = msgspec.json.Decoder(_Throttled)


def throttles_of(record: Record) -> tuple[Throttle, ...]:
    """Returns the settings that a procedure throttles, or is about to."""
    try:
        return _decoder.decode(record.data).throttles if record.kind in (REASSIGN, THROTTLE) else ()
    except msgspec.DecodeError:  # a record that this daemon cannot run names nothing that it could write
        return ()


def held_elsewhere(live: Iterable[Record], pid: int, places: Collection[Place]) -> str | None:
    """Returns a sentence on another procedure that throttles one of these settings; None without."""
    wanted = frozenset(places)
    for record in live:
        if record.pid != pid:
            for one in throttles_of(record):
                if (one.entity, one.setting) in wanted:
                    return f"{record.kind} {record.pid} throttles {one.entity} already ({one.setting})"
    return None


def owners(live: Iterable[Record]) -> dict[Place, Record]:
    """Returns the procedure that holds each setting."""
    return {(one.entity, one.setting): record for record in live for one in throttles_of(record)}


# -- settings that stand in ZooKeeper


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
            if isinstance(one, MalformedNode):
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
