"""Takes operators' requests for elections of many partitions, and judges them in dry runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Literal

from fastapi import FastAPI, Request, Response
from pydantic import Field

from controller.http.documents import ViewRefused, document
from controller.http.models import Document, Item, RequestItem, Words
from controller.http.peers import principal_of
from controller.http.procedures import Procedure
from controller.kafka.procedures.elect import NAME, encode_election
from controller.kafka.term.term import Term
from controller.operator.plan_requests import MOVES_MAX
from controller.operator.procedures import ProcedureView
from controller.procedures.engine import DATA_BYTES_MAX
from controller.process.wording import counted, named
from state_machines.decisions.leader_election import ElectionType
from state_machines.decisions.mass_election import BATCH_MAX, MassElection, looked_on, sentence
from state_machines.model.cluster import Cluster
from state_machines.model.types import TopicPartition
from state_machines.procedures.record import Caller


class ElectionPartition(Item):
    """A partition to elect a leader for."""

    topic: Annotated[str, Field(min_length=1, max_length=249)]
    partition: Annotated[int, Field(ge=0, le=2**31 - 1)]


class ElectionRequest(RequestItem):
    """An election to hold. Unclean ones name their partitions. ``nonce``: the same one never starts a second one."""

    kind: Literal["preferred", "unclean"] = "preferred"
    partitions: list[ElectionPartition] = Field([], max_length=MOVES_MAX, description="empty with allPartitions")
    all_partitions: bool = False
    batch_max: Annotated[int, Field(ge=1, le=BATCH_MAX)] = Field(BATCH_MAX, description="partitions of one wave")
    dry_run: bool = False
    nonce: Words = ""
    reason: Words = ""


class ElectionView:
    """Starts elections; only the active daemon does."""

    def __init__(self, active: Callable[[], Term], procedures: ProcedureView) -> None:
        self._active = active
        self._procedures = procedures

    async def elect(self, request: ElectionRequest, principal: str) -> Procedure:
        """Starts an election, or judges it in a dry run. Refuses an unclean one of all partitions."""
        term, election = self._active(), _election(request)
        caller = Caller(principal=principal, client="regent", reason=request.reason, nonce=request.nonce)
        known = term.procedures.engine_or_none
        if request.dry_run or known is None or known.pid_of(caller) is None:
            _refuse_unknown(term.cluster, election)
        data = encode_election(election)
        if len(data) > DATA_BYTES_MAX:
            raise ViewRefused(f"the request has {len(data)} bytes, at most {DATA_BYTES_MAX} are stored", "split it")
        if request.dry_run:
            found = await _judged(term.cluster, election)
            return Procedure(pid=0, kind=NAME, state="planned", detail=sentence(found))
        return await self._procedures.submit(NAME, data, caller)


def add_election_routes(app: FastAPI, elections: ElectionView) -> None:
    """Adds the route to the surface of a daemon."""

    @app.post("/v1/elections", response_model=Document[Procedure])
    async def elect(wanted: ElectionRequest, request: Request) -> Response:
        return document("Procedure", [await elections.elect(wanted, principal_of(request))])


def _election(request: ElectionRequest) -> MassElection:
    if bool(request.partitions) is request.all_partitions:
        raise ViewRefused("name partitions, or give allPartitions", "one of them, not both")
    kind = ElectionType[request.kind.upper()]
    if kind is ElectionType.UNCLEAN and request.all_partitions:
        raise ViewRefused(
            "an unclean election of all partitions is not held", "name the partitions that have no leader"
        )
    wanted = tuple((one.topic, one.partition) for one in request.partitions)
    return MassElection(kind, None if request.all_partitions else wanted, request.batch_max)


def _refuse_unknown(cluster: Cluster, election: MassElection) -> None:
    """Raises :class:`ViewRefused` for named partitions that do not exist, of which an election could say nothing."""
    unknown = [TopicPartition(*one) for one in election.partitions or () if cluster.find(*one) is None]
    if unknown:
        do = "does" if len(unknown) == 1 else "do"
        raise ViewRefused(
            f"{counted(len(unknown), 'partition')} {do} not exist: {named(unknown)}; nothing is elected",
            "correct the names, see regent list topics",
        )


async def _judged(cluster: Cluster, election: MassElection) -> MassElection:
    """Judges all partitions, in turns of the event loop; counts those that would be elected as elected."""
    while not election.is_over:
        found = looked_on(cluster, election)
        election = MassElection(
            found.kind,
            found.partitions,
            found.batch_max,
            found.after,
            elected=found.elected + len(found.wave),
            already=found.already,
            refused=found.refused,
            losses=found.losses,
            is_over=found.is_over,
        )
        await asyncio.sleep(0)
    return election
