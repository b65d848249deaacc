"""Sets the throttles of a reassign plan before its moves begin, and takes them back at every end of it.

A plan's record names the throttles and the values that stood there before anything is written (KIP-73). So whatever
happens to the daemon, the next one knows what to restore. Configurations are written to ZooKeeper, where brokers that
are down find them, too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from msgspec.structs import replace

from controller.engine.controller import Controller
from controller.kinds.environment import KafkaEnv
from metadata_store.codecs.base import Malformed
from metadata_store.codecs.config import Config
from metadata_store.nodes.entity_configs import ConfigChange, EntityConfig, commit_entities, read_entities
from state_machines.admin_rules.throttles import Entity, restore, throttle, throttled_entities
from state_machines.decisions.plan_progress import ENDED, ReassignPlan
from state_machines.model.types import Assignment, TopicPartition
from state_machines.procedures.outcome import Retry

log = logging.getLogger("regent.procedures")

Found = dict[Entity, EntityConfig]


Failed = dict[Entity, str]
"""Entities that could not be read or written, and why."""

ROUNDS_MAX: Final = 5
"""How often the rest of a transaction is written of which ZooKeeper refused some entities."""


async def set_throttles(env: KafkaEnv, plan: ReassignPlan) -> ReassignPlan | Retry:
    """Returns the plan as it has to be stored first, or with its rate in force once all throttles are written.

    The same plan is returned where nothing is to be done; :class:`Retry` where a configuration cannot be written.
    """
    if plan.held or not plan.rate_bytes_per_s:
        return await lift_throttles(env, plan)
    if plan.rate_in_force == plan.rate_bytes_per_s:
        return plan
    c = env.controller
    moves = {
        TopicPartition(move.topic, move.partition): Assignment(move.origin).reassigned_to(move.target)
        for move in plan.moves
        if move.status not in ENDED and c.cluster.find(move.topic, move.partition) is not None
    }
    found, failed = await _read(c, {*throttled_entities(moves), *(one.entity for one in plan.throttles)})
    if failed:
        return _retry(failed)
    wanted = throttle(moves, plan.rate_bytes_per_s, _entries(found), plan.throttles)
    if wanted.throttles != plan.throttles:
        return replace(plan, throttles=wanted.throttles)
    if failed := await _write(c, wanted.writes, found):
        return _retry(failed)
    _say(wanted.notes)
    return replace(plan, rate_in_force=plan.rate_bytes_per_s)


async def lift_throttles(env: KafkaEnv, plan: ReassignPlan) -> ReassignPlan | Retry:
    """Gives every setting its former value, unless another client changed it; returns the plan without throttles.

    What cannot be restored now stays in the plan, which does not end before; :class:`Retry` where that is all.
    """
    if not plan.throttles:
        return plan
    c = env.controller
    found, failed = await _read(c, {one.entity for one in plan.throttles})
    wanted = restore([one for one in plan.throttles if one.entity in found], _entries(found))
    failed |= await _write(c, wanted.writes, found)
    left = tuple(one for one in plan.throttles if one.entity in failed)
    if left == plan.throttles:
        return _retry(failed)
    _say(wanted.notes)
    return replace(plan, throttles=left, rate_in_force=0)


def _retry(failed: Failed) -> Retry:
    entity, why = min(failed.items())
    return Retry(f"throttle of {entity}{f' and {len(failed) - 1} more' if len(failed) > 1 else ''}: {why}")


def _say(notes: Iterable[str]) -> None:
    for note in notes:
        log.warning("throttle of a plan: %s", note)


def _entries(found: Found) -> Mapping[Entity, Mapping[str, str]]:
    return {entity: one.config.entries for entity, one in found.items()}


async def _read(c: Controller, entities: Iterable[Entity]) -> tuple[Found, Failed]:
    found: Found = {}
    failed: Failed = {}
    for kind, names in _by_kind(entities).items():
        for name, config in (await c.until_read(partial(read_entities, c.zk, kind, names))).items():
            if isinstance(config, Malformed):
                failed[Entity(kind, name)] = f"{config.path} cannot be used: {config.why}"
            else:
                found[Entity(kind, name)] = config
    return found, failed


async def _write(c: Controller, writes: Mapping[Entity, dict[str, str]], found: Found) -> Failed:
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
            failed |= {Entity(kind, name): f"ZooKeeper refused it ({code.name})" for name, code in refused.items()}
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
