"""Sets the throttles of a reassign plan before its moves begin, and takes them back at every end of it.

A plan's record names the throttles and the values that stood there before anything is written (KIP-73). So whatever
happens to the daemon, the next one knows what to restore. A setting that an operator's throttle holds is left to it:
the plan waits.
"""

from __future__ import annotations

from msgspec.structs import replace

from controller.kinds.environment import KafkaEnv
from controller.kinds.throttle_holders import held_elsewhere
from controller.kinds.throttle_settings import entries, read, restored, retry, say, write
from state_machines.admin_rules.throttles import Entity, move_places, throttle, throttled_entities
from state_machines.decisions.plan_progress import ENDED, ReassignPlan
from state_machines.model.cluster import Cluster
from state_machines.model.types import Assignment, TopicPartition
from state_machines.procedures.outcome import Retry


async def set_throttles(env: KafkaEnv, plan: ReassignPlan, pid: int) -> ReassignPlan | Retry:
    """Returns the plan as it has to be stored first, or with its rate in force once all throttles are written.

    The same plan is returned where nothing is to be done; :class:`Retry` where a configuration cannot be written, or
    where another procedure throttles the same setting.
    """
    if plan.held or not plan.rate_bytes_per_s:
        return await lift_throttles(env, plan)
    if plan.rate_in_force == plan.rate_bytes_per_s:
        return plan
    c = env.controller
    moves = _moves(plan, c.cluster)
    if (holder := held_elsewhere(env.live(), pid, move_places(moves))) is not None:
        return Retry(f"{holder}: lift that throttle, or give the plan none")
    found, failed = await read(c, {*throttled_entities(moves), *(one.entity for one in plan.throttles)})
    if failed:
        return retry(failed)
    wanted = throttle(moves, plan.rate_bytes_per_s, entries(found), plan.throttles)
    if wanted.throttles != plan.throttles:
        return replace(plan, throttles=wanted.throttles)
    if failed := await write(c, wanted.writes, found):
        return retry(failed)
    say(wanted.notes)
    return replace(plan, rate_in_force=plan.rate_bytes_per_s)


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
    """Returns the plan as it is stored with its throttles in force, where only its own stand in their places."""
    if not plan.rate_bytes_per_s:
        return plan
    standing: dict[Entity, dict[str, str]] = {}
    for one in plan.throttles:
        standing.setdefault(one.entity, {})[one.setting] = one.value
    found = throttle(_moves(plan, cluster), plan.rate_bytes_per_s, standing, plan.throttles)
    return replace(plan, throttles=found.throttles, rate_in_force=plan.rate_bytes_per_s)


def _moves(plan: ReassignPlan, cluster: Cluster) -> dict[TopicPartition, Assignment]:
    return {
        TopicPartition(move.topic, move.partition): Assignment(move.origin).reassigned_to(move.target)
        for move in plan.moves
        if move.status not in ENDED and cluster.find(move.topic, move.partition) is not None
    }
