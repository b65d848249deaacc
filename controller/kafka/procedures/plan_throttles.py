"""Sets the throttles of a reassign plan before its moves begin, and takes them back at every end of it.

Brokers have their rates while the plan has moves left. A replica is in the lists from the begin of its move until it
has nearly caught up: once it has, producers with acks=all wait for it.

A plan's record names the throttles and the values that stood there before anything is written (KIP-73). So whatever
happens to the daemon, the next one knows what to restore. A setting that an operator's throttle holds is left to it:
the plan waits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import zip_longest
from typing import TypeAlias

from msgspec.structs import replace

from controller.kafka.procedures.environment import KafkaEnv
from controller.kafka.procedures.throttle_settings import (
    REFUSED,
    Failed,
    entries,
    held_elsewhere,
    read,
    restored,
    retry,
    say,
    write,
)
from state_machines.admin_rules.throttles import (
    TOPICS,
    Entity,
    Throttling,
    covers,
    move_places,
    throttle,
    throttled_entities,
)
from state_machines.decisions.plan_progress import ENDED, PlannedMove, ReassignPlan, Status
from state_machines.decisions.throttling import WHY_MAX
from state_machines.model.cluster import Cluster
from state_machines.model.types import Assignment, TopicPartition
from state_machines.procedures.outcome import Retry

Moves: TypeAlias = Mapping[TopicPartition, Assignment]


async def set_throttles(
    env: KafkaEnv, plan: ReassignPlan, pid: int, begins: Mapping[int, Assignment]
) -> ReassignPlan | Retry:
    """Returns the plan as it has to be stored first, or with its rate in force once all throttles are written.

    Lists name the replicas of ``begins``, rows that begin next, and those of moves under way that are not in sync. The
    same plan is returned where nothing is to be done; :class:`Retry` where a configuration cannot be written, or where
    another procedure throttles the same setting. What keeps moves from their begin keeps no list from being shortened.
    """
    if plan.held or not plan.rate_bytes_per_s:
        env.catch_ups.stop()
        return await lift_throttles(env, plan)
    if begins and _is_in_force(plan) and covers(plan.throttles, _narrowed(env.controller.cluster, begins)):
        return plan
    found = await _set(env, plan, pid, begins)
    if isinstance(found, Retry) and begins:
        without = await _set(env, plan, pid, {})
        return found if isinstance(without, Retry) or without == plan else without
    return found


async def _set(env: KafkaEnv, plan: ReassignPlan, pid: int, begins: Mapping[int, Assignment]) -> ReassignPlan | Retry:
    c = env.controller
    under_way = _under_way(plan, c.cluster)
    near = env.catch_ups.near(c, pid, under_way, env.responses.wake)
    copying = _narrowed(c.cluster, under_way | dict(begins), near)
    brokers = _hosts(plan, c.cluster)
    if _is_in_force(plan) and _as_recorded(plan, copying, brokers).settled == plan.throttles:
        return plan
    if (holder := held_elsewhere(env.live(), pid, move_places(copying, brokers))) is not None:
        return Retry(f"{holder}: lift that throttle, or give the plan none")
    entities = {*throttled_entities(copying, brokers), *(one.entity for one in plan.throttles)}
    found, failed = await read(c, entities)
    if failed:
        _refuse(env, failed, begins)
        return retry(failed)
    wanted = throttle(copying, plan.rate_bytes_per_s, entries(found), plan.throttles, brokers=brokers)
    if wanted.throttles != plan.throttles:
        return replace(plan, throttles=wanted.throttles, rate_in_force=0)
    if failed := await write(c, wanted.writes, found):
        _refuse(env, {one: why for one, why in failed.items() if why.startswith(REFUSED)}, begins)
        return retry(failed)
    if wanted.settled != plan.throttles or not _is_in_force(plan):
        say(wanted.notes)
    return replace(plan, throttles=wanted.settled, rate_in_force=plan.rate_bytes_per_s)


def _is_in_force(plan: ReassignPlan) -> bool:
    """Checks whether all throttles of the plan's record were written."""
    return plan.rate_in_force == plan.rate_bytes_per_s


def _refuse(env: KafkaEnv, failed: Failed, begins: Mapping[int, Assignment]) -> None:
    """Has moves refused that were to begin where the lists of their topics cannot be set in this term."""
    for topic in {env.controller.cluster.name(row).topic for row in begins}:
        if (why := failed.get(Entity(TOPICS, topic))) is not None:
            env.unwritable[topic] = f"its throttle cannot be set: {why}"


def _as_recorded(plan: ReassignPlan, moves: Moves, brokers: Collection[int]) -> Throttling:
    """Returns the throttles where only the plan's own stand in their places."""
    standing: dict[Entity, dict[str, str]] = {}
    for one in plan.throttles:
        standing.setdefault(one.entity, {})[one.setting] = one.value
    return throttle(moves, plan.rate_bytes_per_s, standing, plan.throttles, brokers=brokers)


async def lift_throttles(env: KafkaEnv, plan: ReassignPlan) -> ReassignPlan | Retry:
    """Gives every setting its former value, unless another client changed it; returns the plan without throttles.

    What cannot be restored now stays in the plan, which does not end before; :class:`Retry` where that is all.
    """
    if not plan.throttles:
        return plan
    env.catch_ups.stop()
    found = await restored(env.controller, plan.throttles)
    if found.left == plan.throttles:
        return retry(found.failed)
    say(found.notes)
    return replace(plan, throttles=found.left, rate_in_force=0)


def with_throttles(plan: ReassignPlan, cluster: Cluster) -> ReassignPlan:
    """Returns the plan as it is stored while its lists change, at most: with lists of the moves that are under way.

    Those are taken from as many topics as possible, for each list has its names beside its replicas.
    """
    if not plan.rate_bytes_per_s:
        return plan
    if plan.bounds is not None:
        longest = replace(plan.bounds, why=WHY_MAX * "-")
        plan = replace(plan, rate_bytes_per_s=plan.rate_max_bytes_per_s, bounds=longest)
    by_topic: dict[str, list[PlannedMove]] = {}
    for move in _left(plan, cluster):
        by_topic.setdefault(move.topic, []).append(move)
    topics = sorted(by_topic, key=lambda topic: (-len(topic), topic))
    spread = [move for wave in zip_longest(*(by_topic[topic] for topic in topics)) for move in wave if move is not None]
    moves = {
        TopicPartition(move.topic, move.partition): Assignment(move.origin).reassigned_to(move.target)
        for move in spread[: plan.moves_max]
    }
    found = _as_recorded(plan, moves, _hosts(plan, cluster))
    throttles = tuple(replace(one, ours=(one.value, one.value)) for one in found.throttles)
    return replace(plan, throttles=throttles, rate_in_force=plan.rate_bytes_per_s)


def _under_way(plan: ReassignPlan, cluster: Cluster) -> dict[int, Assignment]:
    """Returns the rows of moves that are under way; a plan that is taken back has some that it has still to cancel."""
    statuses = (Status.BEGUN, Status.QUEUED) if plan.reverting else (Status.BEGUN,)
    named = (cluster.find(move.topic, move.partition) for move in plan.moves if move.status in statuses)
    return {row: cluster.reassigning[row] for row in named if row is not None and row in cluster.reassigning}


def _narrowed(
    cluster: Cluster, moves: Mapping[int, Assignment], near: Collection[tuple[TopicPartition, int]] = ()
) -> Moves:
    """Returns moves by name, with the replicas that are to be throttled as those that they add.

    A leader's list slows all followers of a partition. So one of which a replica is ``near`` has no origin: the other
    replicas that it adds are throttled by their own brokers alone.
    """
    found: dict[TopicPartition, Assignment] = {}
    for row, assignment in moves.items():
        name, isr, kept = cluster.name(row), cluster.rows[row].isr, assignment.kept
        out_of_sync = [broker for broker in kept.adding if broker not in isr]
        adding = tuple(broker for broker in out_of_sync if (name, broker) not in near)
        all_listed = len(adding) == len(out_of_sync)
        found[name] = replace(kept, adding=adding) if all_listed else Assignment(adding, adding=adding)
    return found


def _hosts(plan: ReassignPlan, cluster: Cluster) -> frozenset[int]:
    """Returns the brokers from which and to which moves that have not ended copy."""
    moves = [move for move in _left(plan, cluster) if move.added]
    return frozenset(broker for move in moves for broker in (*move.origin, *move.target))


def _left(plan: ReassignPlan, cluster: Cluster) -> list[PlannedMove]:
    moves = [move for move in plan.moves if move.status not in ENDED]
    return [move for move in moves if cluster.find(move.topic, move.partition) is not None]
