"""Makes plans of requests: reads the sizes that they leave out, and refuses what the cluster does not match."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from typing import Annotated, Final

from msgspec.structs import replace
from pydantic import Field

from brokers.client import BrokerCallFailed
from brokers.loads import sizes_on
from controller.http.documents import ViewRefused
from controller.http.models import Item, RequestItem, Words
from controller.kafka.procedures import reassign
from controller.kafka.procedures.environment import KafkaEnv
from controller.kafka.procedures.plan_conflicts import left_of, overlap
from controller.kafka.procedures.plan_throttles import with_throttles
from controller.kafka.term.term import Term
from controller.procedures.engine import DATA_BYTES_MAX, Engine
from controller.process.wording import in_bytes
from state_machines.decisions.plan_checks import faults
from state_machines.decisions.plan_progress import ENDED, PlannedMove, ReassignPlan, Status, reverted
from state_machines.decisions.throttling import RateBounds
from state_machines.model.cluster import Cluster
from state_machines.model.types import TopicPartition
from state_machines.planning.plan import received
from state_machines.procedures.record import Caller

MOVES_MAX: Final = 10_000
"""Moves of one plan."""
Rate = Annotated[int, Field(ge=0, le=2**63 - 1)]
Cap = Annotated[int, Field(ge=1, le=1_000_000)]
Sizes = dict[tuple[str, int], int]
"""Bytes of one replica by topic and partition."""
FAULTS_SHOWN: Final = 20
"""Differences that a refused plan names."""
PLAN_AGAIN: Final = "make a new plan, one of 'regent pipeline plan' from a new snapshot: regent snapshot"
SIZES_S_MAX: Final = 10.0
"""Longest wait for the sizes of a plan; what is not known by then is left out."""
TRAFFIC_S: Final = 1.0
"""Time between the two looks by which a plan's traffic is measured."""
FEWER: Final = "a lower --broker-moves-max, or no throttle"
FEWER_OR_LATER: Final = "a lower --broker-moves-max, --throttle 0 for none, or pause the plan: regent reassign pause"
UNTHROTTLED: Final = "or no throttle"
"""Remedies beside a higher throttle: of a new plan, of one that runs, and of a drain, which has no caps."""


class Move(Item):
    """A move of a reassign plan. Without ``origin`` it is taken from the cluster when the plan is applied."""

    topic: Annotated[str, Field(min_length=1, max_length=249)]
    partition: Annotated[int, Field(ge=0)]
    origin: tuple[int, ...] | None = None
    target: tuple[int, ...]
    size_bytes: int = Field(0, ge=0)
    status: str = "queued"
    copied_bytes: int | None = Field(
        None, description="by the brokers that receive replicas; absent where not measured"
    )
    rate_bytes_per_s: int | None = None
    remaining_s: int | None = None
    records_behind: int | None = None
    why: str = ""
    found: datetime | None = Field(None, description="when it was found superseded")
    by: str = Field("", description="the client that superseded it, as far as a recorded call names it")


class ReassignRequest(RequestItem):
    """A plan to apply. ``nonce``: the same caller's same nonce never starts a second plan."""

    moves: Annotated[list[Move], Field(min_length=1, max_length=MOVES_MAX)]
    cluster_id: Words = Field("", description="of the cluster that the plan was made for; another one refuses it")
    moves_max: Cap = 100
    broker_moves_max: Cap = 10
    bytes_max: Rate = Field(0, description="bytes of the moves under way in the cluster, 0 without a cap")
    broker_bytes_max: Rate = Field(0, description="bytes of the replicas that one broker receives at a time, 0 without")
    rate_bytes_per_s: Rate = Field(0, description="throttle of each broker and direction, 0 without")
    rate_bytes_per_s_max: Rate = Field(
        0, description="upper bound of a throttle that follows the cluster's health from rateBytesPerS on; 0: it stays"
    )
    paused: bool = False
    adopts: bool = Field(False, description="moves that another client has begun to these targets are the plan's own")
    nonce: Words = ""
    reason: Words = ""
    dry_run: bool = False


class ReassignCommand(RequestItem):
    """A change of a plan that runs; absent fields change nothing. ``stop``: no further move begins, for ``reason``."""

    paused: bool | None = None
    moves_max: Cap | None = None
    broker_moves_max: Cap | None = None
    bytes_max: Rate | None = None
    broker_bytes_max: Rate | None = None
    rate_bytes_per_s: Rate | None = Field(None, description="alone: a throttle that stays")
    rate_bytes_per_s_max: Rate | None = Field(None, description="with rateBytesPerS: its upper bound")
    stop: bool = False
    reason: Words = ""


async def requested_plan(term: Term, request: ReassignRequest) -> ReassignPlan:
    """Returns the plan of a request, with the sizes that leaders report where the request has none."""
    unsized = [TopicPartition(move.topic, move.partition) for move in request.moves if not move.size_bytes]
    bounds = bounds_of(request.rate_bytes_per_s, request.rate_bytes_per_s_max)
    sizes = await leader_sizes(term, unsized)
    return ReassignPlan(
        tuple(_planned(term, request.moves, sizes)),
        request.moves_max,
        request.broker_moves_max,
        paused=request.paused,
        rate_bytes_per_s=request.rate_bytes_per_s,
        bytes_max=request.bytes_max,
        broker_bytes_max=request.broker_bytes_max,
        adopts=request.adopts,
        bounds=bounds,
    )


def bounds_of(low: int, high: int) -> RateBounds | None:
    """Returns the bounds of a throttle; None without an upper one.

    Raises :class:`ViewRefused` for bounds that are none.
    """
    if (wrong := reassign.why_no_bounds(low, high)) is not None:
        raise ViewRefused(wrong, "--throttle 1M..50M, for instance: between 1,000,000 and 50,000,000 bytes per second")
    return RateBounds(low, high) if high else None


def _planned(term: Term, moves: Iterable[Move], sizes: Sizes) -> Iterable[PlannedMove]:
    """Yields the moves of a request; those without an origin get the present replicas."""
    for move in moves:
        name, origin = TopicPartition(move.topic, move.partition), move.origin
        if origin is None:
            row = term.cluster.find(*name)
            origin = _origin(term.cluster, row) if row is not None else ()
        added = len(set(move.target).difference(origin))
        yield PlannedMove(*name, origin, move.target, move.size_bytes or sizes.get(name, 0) * added)


def _origin(cluster: Cluster, row: int) -> tuple[int, ...]:
    """Returns the present replicas, of a partition that is being reassigned those before."""
    written = cluster.reassigning.get(row)
    return cluster.rows[row].assignment.replicas if written is None else written.kept.origin


async def leader_sizes(term: Term, partitions: Iterable[TopicPartition]) -> Sizes:
    """Reads the bytes of one replica of each partition from its leader; those that no leader reports are left out."""
    cluster, dial = term.cluster, term.controller.dial
    by_leader: dict[int, list[TopicPartition]] = {}
    for name in partitions:
        row = cluster.find(*name)
        if row is not None:
            by_leader.setdefault(cluster.rows[row].leader, []).append(name)
    found = await sizes_on(dial, cluster.brokers, by_leader, SIZES_S_MAX) if dial is not None else {}
    known = [sizes for sizes in found.values() if not isinstance(sizes, BrokerCallFailed)]
    return {name: size.size_bytes for sizes in known for name, size in sizes.items()}


async def refuse_slow(term: Term, plan: ReassignPlan, instead: str = FEWER) -> None:
    """Raises :class:`ViewRefused` for a throttle below what producers write to the partitions: their copies never end.

    Looks at the leaders' logs twice; what no leader reports counts as no traffic, and neither does a move that has
    ended. ``instead``: other remedies than a higher throttle.
    """
    if not plan.rate_bytes_per_s:
        return
    moves = [move for move in plan.moves if move.status not in ENDED]
    names = [TopicPartition(move.topic, move.partition) for move in moves if move.added]
    before, began_s = await leader_sizes(term, names), _now_s()
    await asyncio.sleep(TRAFFIC_S)
    after, took_s = await leader_sizes(term, names), _now_s() - began_s
    traffic = {name: max(0, after[name] - before[name]) / took_s for name in before.keys() & after.keys()}
    found = received(moves, traffic, plan.broker_moves_max)
    if found is not None and found.bytes_per_s >= plan.rate_max_bytes_per_s:
        raise ViewRefused(
            f"the throttle of {in_bytes(plan.rate_max_bytes_per_s)}/s is below the {in_bytes(found.bytes_per_s)}/s "
            f"that producers write to partitions which broker {found.broker} would copy: it would never catch up",
            f"give --throttle {2 * found.bytes_per_s} or more, {instead}",
        )


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def refuse_other_cluster(request: ReassignRequest, present: str | None) -> None:
    """Raises :class:`ViewRefused` for a plan of another cluster."""
    if request.cluster_id and present and request.cluster_id != present:
        raise ViewRefused(f"the plan is for cluster {request.cluster_id}, and this is {present}", "plan again here")


def refuse_unfit(term: Term, plan: ReassignPlan, caller: Caller) -> None:
    """Raises :class:`ViewRefused` with the differences for a plan that the cluster, or another plan, does not match."""
    c = term.controller
    refuse_overlap(term.procedures.engine_or_none, plan, caller)
    every = faults(plan, term.cluster, c.daemons, c.cluster.cordoned, c.cluster.min_isr)
    found = list(islice(every, FAULTS_SHOWN))
    if found:
        more = f"; and {left} more" if (left := sum(1 for _ in every)) else ""
        raise ViewRefused(f"the plan does not match the cluster: {'; '.join(found)}{more}", PLAN_AGAIN)


def refuse_overlap(engine: Engine[KafkaEnv] | None, plan: ReassignPlan, caller: Caller) -> None:
    """Raises :class:`ViewRefused` where a plan of another request moves some partitions, or too many are live."""
    if engine is None:
        return
    same = engine.pid_of(caller)
    others = (record for record in engine.live() if record.pid != same and record.pid not in engine.unusable)
    plans = [(record, reassign.LEFT.of(record)) for record in others if record.kind == reassign.NAME]
    if (found := overlap(left_of(plan.moves), plans)) is not None:
        raise ViewRefused(*found)


def encoded(plan: ReassignPlan, cluster: Cluster) -> bytes:
    """Encodes a plan; raises :class:`ViewRefused` for one that is too large, also with the throttles of its undoing.

    Those are the most: they come on top of the throttles that its moves had.
    """
    data = reassign.encode_plan(plan)
    if len(data) > DATA_BYTES_MAX:
        why = f"the plan has {len(data)} bytes, at most {DATA_BYTES_MAX} are stored"
        raise ViewRefused(why, "limit it to some topics with --topic, and apply several plans")
    throttled = with_throttles(plan, cluster)
    done = replace(throttled, moves=tuple(replace(move, status=Status.DONE) for move in throttled.moves))
    size = len(reassign.encode_plan(with_throttles(reverted(done), cluster)))
    if size > reassign.MESSAGE_BYTES_MAX:
        why = f"the plan has {size} bytes with its throttles, at most {reassign.MESSAGE_BYTES_MAX} are stored"
        raise ViewRefused(
            why, "limit it to some topics with --topic, and apply several plans, or leave --throttle away"
        )
    return data
