"""Takes operators' requests for reassign plans, and lists plans' moves and the reassignments under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from fastapi import FastAPI, Request, Response
from msgspec.structs import replace
from pydantic import Field

from controller.http.documents import NotFound, ViewRefused, document
from controller.http.models import Document, Item
from controller.http.peers import principal_of
from controller.http.procedures import Procedure, time_of
from controller.kafka.procedures import drain, reassign
from controller.kafka.term.term import Term
from controller.operator.plan_requests import (
    FEWER_OR_LATER,
    Move,
    ReassignCommand,
    ReassignRequest,
    encoded,
    leader_sizes,
    refuse_other_cluster,
    refuse_slow,
    refuse_unfit,
    requested_plan,
)
from controller.operator.procedure_items import moved_by, procedure_item
from controller.operator.procedures import BY_NAME, ProcedureView
from controller.operator.restarts import in_turns
from controller.procedures.refusals import ending_of
from controller.process.wording import counted, in_bytes, in_time
from state_machines.decisions.plan_pace import MovePace
from state_machines.decisions.plan_progress import STOPPED, PlannedMove, ReassignPlan, Status, Superseded, as_planned
from state_machines.model.cluster import Cluster
from state_machines.model.types import Assignment, TopicPartition
from state_machines.planning import plan as planning
from state_machines.planning.cluster_view import view_in_turns
from state_machines.planning.goals import Undo
from state_machines.planning.plan import expected
from state_machines.planning.planner import plan as plan_goal
from state_machines.procedures.record import NO_ENDING, Caller, Record

PLANNED: Final = "planned"
REFUSED: Final = "refused"


class Reassignment(Item):
    """A reassignment under way. ``pid`` is the plan that began or adopted it; absent: another client did."""

    topic: str
    partition: int
    origin: tuple[int, ...]
    target: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    pid: int | None = None
    by: str = Field(description="the principal that began it, as far as known")
    since: datetime | None = Field(None, description="when the plan was submitted")


class PlanView:
    """The reassign plans of a daemon, and the reassignments under way."""

    def __init__(self, procedures: ProcedureView, cluster_id: Callable[[], str | None]) -> None:
        self._procedures = procedures
        self._cluster_id = cluster_id
        self._one_way_back = asyncio.Lock()

    async def moves(self, pid: int) -> list[Move]:
        """Lists the moves of a reassign plan, or of a drain; those of a drain's plan also after its end."""
        records, _ = await self._procedures.known()
        record, term = records.get(pid), self._procedures.term()
        if record is not None and record.kind == drain.NAME:
            record = next((one for one in records.values() if one.parent == pid and one.kind == reassign.NAME), record)
        if record is None:
            record = next((one for one in records.values() if moved_by(one) == pid), None)
        if record is not None and record.kind == drain.NAME:
            return drained_items(record, term.cluster if term is not None else None)
        if record is None or record.kind != reassign.NAME:
            raise NotFound(f"no reassign plan has pid {pid}", "see 'regent procedures list'")
        if term is None or record.state.is_final:
            return move_items(reassign.plan_of(record))
        found = await self._procedures.meter.measured(term, record)
        return move_items(found.plan, found.moves)

    async def way_back(self, pid: int) -> list[Move]:
        """Plans the moves that take back a plan, or a drain, that has ended; changes nothing.

        One is planned at a time, because brokers are queried for it.
        """
        async with self._one_way_back:
            term = self._procedures.active()
            ended = await self._procedures.one(pid, 0)
            return await moves_back(term, ended, await self.moves(pid))

    def reassignments(self) -> list[Reassignment]:
        """Lists the reassignments under way, of plans and of other clients."""
        term = self._procedures.shown()
        return reassignment_items(term.cluster, self._procedures.engine_of(term).records.values())

    async def apply(self, request: ReassignRequest, principal: str) -> Procedure:
        """Starts a plan, or judges it in a dry run; refuses one that the cluster does not match."""
        refuse_other_cluster(request, self._cluster_id())
        caller = Caller(principal=principal, client="regent", reason=request.reason, nonce=request.nonce)
        known = self._procedures.active().procedures.engine_or_none
        pid = known.pid_of(caller) if known is not None and not request.dry_run else None
        if known is not None and pid is not None and (record := known.records.get(pid)) is not None:
            return procedure_item(record, BY_NAME)  # one that is not durable yet has its pid once it is stored
        plan = await requested_plan(self._procedures.active(), request)
        refuse_unfit(self._procedures.active(), plan, caller)
        await refuse_slow(self._procedures.active(), plan)
        refuse_unfit(self._procedures.active(), plan, caller)
        data = encoded(plan, self._procedures.active().cluster)
        if request.dry_run:
            return planned_item(plan)
        return await self._procedures.submit(reassign.NAME, data, caller)

    async def command(self, pid: int, command: ReassignCommand, principal: str = "") -> Procedure:
        """Changes a plan that runs; refuses a throttle at which its copies would never end."""
        await self._refuse_slow(pid, command)
        change = msgspec.json.encode(reassign.PlanCommand(**command.model_dump(exclude={"reason"})))
        ending = ending_of("cancel", principal, command.reason) if command.stop else NO_ENDING
        return await self._procedures.commanded(pid, change, ending)

    async def _refuse_slow(self, pid: int, command: ReassignCommand) -> None:
        term = self._procedures.active()
        engine = term.procedures.engine_or_none
        record = engine.records.get(pid) if engine is not None else None
        rate = command.rate_bytes_per_s_max or command.rate_bytes_per_s
        given = {"rate_bytes_per_s": rate, "broker_moves_max": command.broker_moves_max}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        changes |= {"bounds": None} if rate is not None else {}
        if record is not None and record.kind == reassign.NAME and not record.state.is_final and changes:
            await refuse_slow(term, replace(reassign.plan_of(record), **changes), FEWER_OR_LATER)


def add_plan_routes(app: FastAPI, plans: PlanView) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/procedures/{pid}/moves", response_model=Document[Move])
    async def moves(pid: int) -> Response:
        return document("Move", await plans.moves(pid))

    @app.get("/v1/procedures/{pid}/way-back", response_model=Document[Move])
    async def way_back(pid: int) -> Response:
        return document("Move", await plans.way_back(pid))

    @app.get("/v1/reassignments", response_model=Document[Reassignment])
    async def reassignments() -> Response:
        return document("Reassignment", plans.reassignments())

    @app.post("/v1/reassignments", response_model=Document[Procedure])
    async def apply(plan: ReassignRequest, request: Request) -> Response:
        return document("Procedure", [await plans.apply(plan, principal_of(request))])

    @app.post("/v1/reassignments/{pid}", response_model=Document[Procedure])
    async def command(pid: int, change: ReassignCommand, request: Request) -> Response:
        return document("Procedure", [await plans.command(pid, change, principal_of(request))])


def move_items(plan: ReassignPlan, each: Sequence[MovePace] | None = None) -> list[Move]:
    """Describes the moves of a plan, from origin to target also while it is taken back; ``each``: their progress."""
    notes = {note.move: note for note in plan.superseded}
    moves = as_planned(plan)
    return [_move_item(move, each[at] if each is not None else None, notes.get(at)) for at, move in enumerate(moves)]


def drained_items(record: Record, cluster: Cluster | None) -> list[Move]:
    """Describes the moves of a drain without those of its plan: by where replicas are now, as far as that is known."""
    found, begun = drain.drain_of(record), moved_by(record)
    items = [_move_item(move, None, None) for move in (found.plan.moves if found.plan is not None else ())]
    return [item.model_copy(update={"status": _place_of(item, cluster) if begun else "queued"}) for item in items]


def _place_of(move: Move, cluster: Cluster | None) -> str:
    row = cluster.find(move.topic, move.partition) if cluster is not None else None
    if cluster is None or row is None:
        return "unknown" if cluster is None else "gone"
    if cluster.is_moving(row):
        return Status.BEGUN.name.lower()
    replicas = cluster.rows[row].assignment.replicas
    return "done" if set(replicas) == set(move.target) else "back" if replicas == move.origin else "moved since"


def _move_item(move: PlannedMove, pace: MovePace | None, note: Superseded | None) -> Move:
    known = {} if pace is None else {"copied_bytes": pace.copied_bytes, "rate_bytes_per_s": pace.rate_bytes_per_s}
    late = {} if pace is None else {"remaining_s": pace.remaining_s, "records_behind": pace.records_behind}
    return Move(
        topic=move.topic,
        partition=move.partition,
        origin=move.origin,
        target=move.target,
        size_bytes=move.bytes if pace is None else pace.size_bytes,
        status=move.status.name.lower(),
        why=(move.why if pace is None else pace.why) or (STOPPED if move.status is Status.STOPPED else ""),
        found=time_of(note.found_ms) if note is not None else None,
        by=note.by if note is not None else "",
        **known,
        **late,
    )


def reassignment_items(cluster: Cluster, records: Iterable[Record]) -> list[Reassignment]:
    """Describes the reassignments under way, with the plans that they belong to."""
    owners: dict[tuple[str, int], Record] = {}
    for record in records:
        if record.kind == reassign.NAME and not record.state.is_final:
            begun = [move for move in reassign.plan_of(record).moves if move.status is Status.BEGUN]
            owners |= {(move.topic, move.partition): record for move in begun}
    moving = {cluster.name(row): written.kept for row, written in cluster.reassigning.items() if written.kept.moving}
    return [_reassignment(name, moving[name], owners.get(name)) for name in sorted(moving)]


def _reassignment(name: TopicPartition, written: Assignment, owner: Record | None) -> Reassignment:
    return Reassignment(
        topic=name.topic,
        partition=name.partition,
        origin=written.origin,
        target=written.target,
        adding=written.adding,
        removing=written.removing,
        pid=owner.pid if owner is not None else None,
        by=f"plan of {owner.caller.principal}" if owner is not None else "another client",
        since=time_of(owner.submitted_ms) if owner is not None else None,
    )


def planned_item(plan: ReassignPlan) -> Procedure:
    """Describes a plan that was judged and not applied: what it copies, and how long that takes at its throttle."""
    size, unknown = (
        sum(move.bytes for move in plan.moves),
        sum(move.added != () and not move.bytes for move in plan.moves),
    )
    parts = [f"{in_bytes(size)} to copy"]
    found = expected(plan.moves, plan.rate_bytes_per_s) if plan.rate_bytes_per_s else None
    fastest = expected(plan.moves, plan.rate_max_bytes_per_s) if plan.bounds is not None else None
    if found is not None and fastest is not None:
        parts.append(f"{in_time(fastest.seconds)} to {in_time(found.seconds)} between the bounds of the throttle")
    elif found is not None:
        parts.append(f"about {in_time(found.seconds)} at the throttle")
    if unknown:
        parts.append(f"without {counted(unknown, 'move')} of unknown size")
    return Procedure(
        pid=0,
        kind=reassign.NAME,
        state="planned",
        detail=reassign.sentence(plan),
        progress=", ".join(parts),
        size_bytes=size,
        remaining_s=found.seconds if found is not None else None,
    )


async def moves_back(term: Term, ended: Procedure, moves: Sequence[Move]) -> list[Move]:
    """Returns the moves that take back what a procedure moved: each *planned*, or *refused* with its cause.

    Partitions that are back already are left out. The brokers of a drain count as undrained, because replicas return
    to them once they are. Raises :class:`ViewRefused` for a procedure that has not ended.
    """
    if not ended.ended:
        raise ViewRefused(f"procedure {ended.pid} has not ended", f"regent end {ended.pid} --undo takes it back")
    goal = Undo(tuple(planning.Move(m.topic, m.partition, m.origin or (), m.target) for m in moves), f"pid {ended.pid}")
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
    found = await asyncio.to_thread(plan_goal, view, goal)
    return [*_planned(found.moves), *_refused(goal.moves, found)]


def _planned(moves: Iterable[planning.Move]) -> Iterable[Move]:
    for move in moves:
        yield Move(
            topic=move.topic,
            partition=move.partition,
            origin=move.origin,
            target=move.target,
            size_bytes=move.bytes or 0,
            status=PLANNED,
        )


def _refused(moves: Iterable[planning.Move], found: planning.Plan) -> Iterable[Move]:
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
