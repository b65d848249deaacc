"""Compares a reassign plan with the cluster before it is applied."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from state_machines.decisions.plan_progress import ReassignPlan, below_min_isr
from state_machines.decisions.reassignment import NotReassigned, ReassignmentRequest, judge
from state_machines.model.cluster import Cluster
from state_machines.model.min_isr import UNKNOWN, MinIsr
from state_machines.model.types import TopicPartition


def faults(
    plan: ReassignPlan,
    cluster: Cluster,
    daemons: Collection[int],
    cordoned: Collection[int] = (),
    min_isr: MinIsr = UNKNOWN,
) -> Iterator[str]:
    """Yields why a plan cannot be applied: what the cluster has that the plan does not expect."""
    seen: set[TopicPartition] = set()
    for move in plan.moves:
        name = TopicPartition(move.topic, move.partition)
        row = cluster.find(*name)
        if name in seen:
            yield f"{name} is named twice"
        elif row is None:
            yield f"{name} does not exist"
        elif (written := cluster.reassigning.get(row)) is not None:
            if not plan.adopts or written.target != move.target:
                target = f"is being reassigned to {list(written.target)}"
                yield f"{name} {target}: wait for its end, cancel it, or adopt it as it is: regent reassign adopt"
            elif written.kept.origin != move.origin:
                yield f"{name} moves away from {list(written.kept.origin)}, the plan expects {list(move.origin)}"
        elif cluster.rows[row].assignment.replicas != move.origin:
            present = list(cluster.rows[row].assignment.replicas)
            yield f"{name} has replicas {present}, the plan expects {list(move.origin)}"
        else:
            found = judge(cluster, ReassignmentRequest(row, move.target), daemons)
            avoided = [broker for broker in move.target if broker in cordoned and broker not in move.origin]
            if isinstance(found, NotReassigned):
                yield f"{name} cannot have replicas {list(move.target)}: {found.why}"
            elif avoided:
                yield f"{name} cannot get a replica on {avoided}: cordoned, see regent uncordon"
            elif (why := below_min_isr(move, min_isr)) is not None:
                yield f"{name} cannot have replicas {list(move.target)}: {why}"
        seen.add(name)
