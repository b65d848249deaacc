"""Plans the way back of a reassign plan, or of a drain, that has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from controller.http.errors import Refused
from controller.http.procedure_models import Move, Procedure
from controller.kafka.term.term import Term
from controller.operator.plan_requests import leader_sizes
from controller.operator.restarts import in_turns
from state_machines.model.types import TopicPartition
from state_machines.planning import plan as plans
from state_machines.planning.cluster_view import view_in_turns
from state_machines.planning.goals import Undo
from state_machines.planning.planner import plan

PLANNED: Final = "planned"
REFUSED: Final = "refused"


async def moves_back(term: Term, ended: Procedure, moves: Sequence[Move]) -> list[Move]:
    """Returns the moves that take back what a procedure moved: each *planned*, or *refused* with its cause.

    Partitions that are back already are left out. The brokers of a drain count as undrained, because replicas return
    to them once they are. Raises :class:`Refused` for a procedure that has not ended.
    """
    if not ended.ended:
        raise Refused(f"procedure {ended.pid} has not ended", f"regent end {ended.pid} --undo takes it back")
    goal = Undo(tuple(plans.Move(m.topic, m.partition, m.origin or (), m.target) for m in moves), f"pid {ended.pid}")
    if not goal.moves:
        return []
    c, cluster = term.controller, term.cluster
    sizes = await leader_sizes(term, [TopicPartition(move.topic, move.partition) for move in moves])
    topics = {move.topic for move in moves}
    min_isr = {name: value for name in topics if (value := c.cluster.min_isr.of(name)) is not None}
    marked = c.cluster.cordoned.difference(ended.brokers)
    view = await in_turns(
        cluster, lambda: view_in_turns(cluster, "", sizes=sizes, min_isr=min_isr, cordoned=marked, of=topics)
    )
    found = await asyncio.to_thread(plan, view, goal)
    return [*_planned(found.moves), *_refused(goal.moves, found)]


def _planned(moves: Iterable[plans.Move]) -> Iterable[Move]:
    for move in moves:
        yield Move(
            topic=move.topic,
            partition=move.partition,
            origin=move.origin,
            target=move.target,
            size_bytes=move.bytes or 0,
            status=PLANNED,
        )


def _refused(moves: Iterable[plans.Move], found: plans.Plan) -> Iterable[Move]:
    causes = {one.subject: one.why for one in found.refused}
    for move in moves:
        if (why := causes.get(move.name)) is not None:
            yield Move(
                topic=move.topic,
                partition=move.partition,
                origin=move.target,
                target=move.origin,
                status=REFUSED,
                why=why,
            )
