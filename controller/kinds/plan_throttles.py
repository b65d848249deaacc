"""Sets the throttles of a reassign plan before its moves begin, and takes them back at every end of it.

Brokers have their rates while the plan has moves left. A replica is in the lists from the begin of its move until it is
in sync: from then on producers with acks=all wait for it.

A plan's record names the throttles and the values that stood there before anything is written (KIP-73). So whatever
happens to the daemon, the next one knows what to restore. A setting that an operator's throttle holds is left to it:
the plan waits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

from msgspec.structs import replace

from controller.kinds.environment import KafkaEnv
from controller.kinds.throttle_holders import held_elsewhere
from controller.kinds.throttle_settings import entries, read, restored, retry, say, write
from state_machines.admin_rules.throttles import Entity, Throttling, move_places, throttle, throttled_entities
from state_machines.decisions.plan_progress import ENDED, PlannedMove, ReassignPlan, Status
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
    another procedure throttles the same setting.
    """
    if plan.held or not plan.rate_bytes_per_s:
        return await lift_throttles(env, plan)
    c = env.controller
    copying, brokers = _copying(plan, c.cluster, begins), _hosts(plan, c.cluster)
    if _stands(plan, copying, brokers):
        return plan
    if (holder := held_elsewhere(env.live(), pid, move_places(copying, brokers))) is not None:
        return Retry(f"{holder}: lift that throttle, or give the plan none")
    entities = {*throttled_entities(copying, brokers), *(one.entity for one in plan.throttles)}
    found, failed = await read(c, entities)
    if failed:
        return retry(failed)
    wanted = throttle(copying, plan.rate_bytes_per_s, entries(found), plan.throttles, brokers=brokers)
    if wanted.throttles != plan.throttles:
        return replace(plan, throttles=wanted.throttles, rate_in_force=0)
    if failed := await write(c, wanted.writes, found):
        return retry(failed)
    say(wanted.notes)
    return replace(plan, throttles=wanted.settled, rate_in_force=plan.rate_bytes_per_s)


def _stands(plan: ReassignPlan, copying: Moves, brokers: Collection[int]) -> bool:
    """Checks whether all throttles were written, as far as the plan's record tells."""
    if plan.rate_in_force != plan.rate_bytes_per_s:
        return False
    return _as_recorded(plan, copying, brokers).settled == plan.throttles


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
    found = await restored(env.controller, plan.throttles)
    if found.left == plan.throttles:
        return retry(found.failed)
    say(found.notes)
    return replace(plan, throttles=found.left, rate_in_force=0)


def with_throttles(plan: ReassignPlan, cluster: Cluster) -> ReassignPlan:
    """Returns the plan as it is stored while its lists change, at most: with lists of all moves, each of them twice."""
    if not plan.rate_bytes_per_s:
        return plan
    moves = {
        TopicPartition(move.topic, move.partition): Assignment(move.origin).reassigned_to(move.target)
        for move in _left(plan, cluster)
    }
    found = _as_recorded(plan, moves, _hosts(plan, cluster))
    twice = tuple(replace(one, ours=(one.value,)) for one in found.settled)
    return replace(plan, throttles=twice, rate_in_force=plan.rate_bytes_per_s)


def _copying(plan: ReassignPlan, cluster: Cluster, begins: Mapping[int, Assignment]) -> Moves:
    """Returns the moves that copy, each with the replicas that are not in sync as those that it adds."""
    rows = {move: cluster.find(move.topic, move.partition) for move in plan.moves if move.status is Status.BEGUN}
    under_way = {
        row: cluster.reassigning[row] for row in rows.values() if row is not None and row in cluster.reassigning
    }
    found: dict[TopicPartition, Assignment] = {}
    for row, assignment in (under_way | dict(begins)).items():
        isr = cluster.rows[row].isr
        adding = tuple(broker for broker in assignment.kept.adding if broker not in isr)
        found[cluster.name(row)] = replace(assignment.kept, adding=adding)
    return found


def _hosts(plan: ReassignPlan, cluster: Cluster) -> frozenset[int]:
    """Returns the brokers from which and to which moves that have not ended copy."""
    moves = [move for move in _left(plan, cluster) if move.added]
    return frozenset(broker for move in moves for broker in (*move.origin, *move.target))


def _left(plan: ReassignPlan, cluster: Cluster) -> list[PlannedMove]:
    moves = [move for move in plan.moves if move.status not in ENDED]
    return [move for move in moves if cluster.find(move.topic, move.partition) is not None]
