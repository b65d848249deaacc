"""Reads and writes the configurations of entities that throttles set, and gives settings their former values.

Configurations are written to ZooKeeper, where brokers that are down find them, too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from controller.kafka.path.controller import Controller
from metadata_store.codecs.base import Malformed
from metadata_store.codecs.config import Config
from metadata_store.nodes.entity_configs import ConfigChange, EntityConfig, commit_entities, read_entities
from state_machines.admin_rules.throttles import Entity, Throttle, restore
from state_machines.procedures.outcome import Retry

log = logging.getLogger("regent.procedures")

Found = dict[Entity, EntityConfig]
Failed = dict[Entity, str]
"""Entities that could not be read or written, and why."""

REFUSED: Final = "ZooKeeper refused it"
ROUNDS_MAX: Final = 5
"""How often the rest of a transaction is written of which ZooKeeper refused some entities."""


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
            if isinstance(config, Malformed):
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
