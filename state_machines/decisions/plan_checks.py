"""Compares a reassign plan with the cluster before it is applied, and bounds what its record says afterwards."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from state_machines.decisions.plan_progress import (
    ELSEWHERE,
    PlannedMove,
    ReassignPlan,
    Status,
    Superseded,
    below_min_isr,
)
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
                yield f"{name} cannot get a replica on {avoided}: {_way_back(avoided, cluster)}"
            elif (why := below_min_isr(move, min_isr)) is not None:
                yield f"{name} cannot have replicas {list(move.target)}: {why}"
        seen.add(name)


def _way_back(avoided: Sequence[int], cluster: Cluster) -> str:
    """Returns the marks of brokers that get no replica, with the command that removes each."""
    drained = [broker for broker in avoided if broker in cluster.drained]
    cordoned = [broker for broker in avoided if broker not in cluster.drained]
    marks = (("drained", "undrain", drained), ("cordoned", "uncordon", cordoned))
    return ", ".join(
        f"{mark}: 'regent {verb} {' '.join(map(str, found))}' removes the mark" for mark, verb, found in marks if found
    )


NOTED_MAX: Final = 500
"""Superseded moves of a plan that have a time, a caller, and the replicas that they have got."""
BY_BYTES_MAX: Final = 120
"""Bytes of a caller's words; more are cut."""


def newly_superseded(before: ReassignPlan, after: ReassignPlan) -> list[int]:
    """Returns the places of the moves that are superseded since ``before``."""
    pairs = enumerate(zip(before.moves, after.moves, strict=True))
    return [at for at, (old, new) in pairs if new.status is Status.SUPERSEDED and old.status is not new.status]


def noted(plan: ReassignPlan, found: Sequence[int], now_ms: int, callers: Mapping[TopicPartition, str]) -> ReassignPlan:
    """Returns the plan with its newly ``found`` superseded moves noted, as many as the bound allows.

    The others only say that the partition was reassigned.
    """
    room = max(0, NOTED_MAX - len(plan.superseded))
    moves = list(plan.moves)
    notes = [Superseded(at, now_ms, _cut(callers.get(_name(plan, at), ""))) for at in found[:room]]
    for at in found[room:]:
        if moves[at].why.startswith(ELSEWHERE):
            moves[at] = replace(moves[at], why=ELSEWHERE)
    return replace(plan, moves=tuple(moves), superseded=(*plan.superseded, *notes))


def _name(plan: ReassignPlan, at: int) -> TopicPartition:
    return TopicPartition(plan.moves[at].topic, plan.moves[at].partition)


def _cut(words: str) -> str:
    return words.encode()[:BY_BYTES_MAX].decode("utf-8", "ignore")


WORDS_KEPT_MAX: Final = 100
"""Moves of a shortened plan that keep their reasons, and superseded moves that keep their callers: the first ones."""


def shortened(plan: ReassignPlan) -> ReassignPlan:
    """Returns the plan without the words of all moves but the first ones.

    A plan that was shortened, and looked at again, is as short as before: writes of it come to an end.
    """
    left = WORDS_KEPT_MAX
    moves: list[PlannedMove] = []
    for move in plan.moves:
        keeps = not move.why or left > 0
        left -= bool(move.why)
        moves.append(move if keeps else replace(move, why=""))
    return replace(plan, moves=tuple(moves), superseded=plan.superseded[:WORDS_KEPT_MAX])
