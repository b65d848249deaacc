"""Lists what a drain would change: marks, leaders and replicas of its brokers, in rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from controller.http.planned_models import PlannedChange
from controller.http.procedure_models import CordonedBroker
from state_machines.decisions.drain import Foretold
from state_machines.decisions.plan_progress import ReassignPlan
from state_machines.model.types import TopicPartition


def drain_rows(
    marks: Mapping[int, CordonedBroker], found: Mapping[int, Foretold], plan: ReassignPlan | None
) -> list[PlannedChange]:
    """Returns the rows of a drain: of each broker, then each move of its plan."""
    return [*_of_brokers(marks, found, plan), *_of_moves(plan)]


def _of_brokers(
    marks: Mapping[int, CordonedBroker], found: Mapping[int, Foretold], plan: ReassignPlan | None
) -> Iterator[PlannedChange]:
    for broker, (count, led, stay) in found.items():
        entity, mark = f"broker {broker}", marks.get(broker)
        before = "" if mark is None else "drained" if mark.drained else "cordoned"
        yield PlannedChange(entity=entity, what="mark", before=before, after="drained")
        why = "; ".join(f"{left} stay: {cause}" for cause, left in stay.items())
        after = str(sum(stay.values()))
        yield PlannedChange(entity=entity, what="leaders", before=str(led), after=after, why=why)
        if plan is not None:
            moved = sum(broker in move.origin and broker not in move.target for move in plan.moves)
            why = f"{count - moved} do not fit into one record: drain again" if moved < count else ""
            yield PlannedChange(entity=entity, what="replicas", before=str(count), after=str(count - moved), why=why)


def _of_moves(plan: ReassignPlan | None) -> Iterator[PlannedChange]:
    for move in plan.moves if plan is not None else ():
        entity = str(TopicPartition(move.topic, move.partition))
        before, after = (",".join(map(str, replicas)) for replicas in (move.origin, move.target))
        yield PlannedChange(entity=entity, what="replicas", before=before, after=after)
