"""F4: a daemon's failover on a cluster with records of procedures, beside the same one without; W1: a plan's begin.

F4 plays failovers of one daemon, turn about with and without the records: results of plans, which are kept for a while.
W1 begins a plan's moves as a procedure and by the bare handler of such a request, until all brokers have acknowledged
the change; the term runs inside this process.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from benchmarks import request_znodes, role, znodes
from benchmarks.arena import Arena, arena, say
from benchmarks.contestants import OURS
from benchmarks.datasets import shape
from benchmarks.in_process import new_term, told
from benchmarks.procedures.plan import Sizes, goal
from benchmarks.procedures.rows import paired
from benchmarks.requested import moved
from benchmarks.results import Row
from benchmarks.turns import Turn, Wrong, failover
from benchmarks.znodes import in_multis
from controller.kafka.path.controller import Controller
from controller.kafka.procedures.reassign import NAME, encode_plan, plan_of, sentence
from controller.kafka.reassignments.reassignment_requests import begin
from controller.kafka.term.failover import fail_over
from controller.kafka.term.procedures import TermProcedures
from controller.process.clock import wall_ms
from controller.role import own_znodes as own
from metadata_store import paths
from metadata_store.kazoo_adapter import KazooZooKeeper
from metadata_store.port import ANY_VERSION, Create, Delete, Op, ZooKeeper
from metadata_store.records import codec
from metadata_store.records.znodes import NAME_DIGITS
from state_machines.decisions.plan_progress import PlannedMove, ReassignPlan, Status
from state_machines.model.types import TopicPartition
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.states import State

SESSION_MS: Final = 120_000
RESULT_MOVES: Final = 3
"""Moves of each plan that has ended."""
TURNS_MAX: Final = 100
OPERATOR: Final = Caller("User:ops", "", "the benchmark")


async def failovers(sizes: Sizes, folder: Path) -> list[Row]:
    """Plays failovers with and without records in turn."""
    turns: dict[bool, list[Turn]] = {True: [], False: []}
    async with arena(shape(sizes.failover_shape), folder, (OURS,)) as found:
        regent = found.contestants[OURS]
        await found.calm()
        await failover(found, regent)  # the first one of a process is a cold one
        for number in range(2 * sizes.rounds):
            there = number % 4 in {1, 2}
            await found.calm()
            await _kept(found.zk, sizes.records if there else 0)
            turns[there].append(await failover(found, regent))
            say(f"F4, {'with' if there else 'without'} records: {turns[there][-1].ready_s:.3f} s")
    what = f"failover with {sizes.records:,} records of procedures"
    size, without = sizes.failover_shape, "regent without records"
    ready = [[turn.ready_s or 0.0 for turn in turns[there]] for there in (True, False)]
    last = [[turn.told_s for turn in turns[there]] for there in (True, False)]
    rows = [
        paired("F4", size, f"{what} until ready", "s", *ready, goal=goal("F4"), peer_is=without),
        paired("F4t", size, f"{what} until the last broker has it", "s", *last, goal=goal("F4"), peer_is=without),
    ]
    for row in rows:
        for name, there in (("regent", True), ("peer", False)):
            row.phases[name] = {"CPU s": sum(turn.cpu_s for turn in turns[there]) / len(turns[there])}
    return rows


async def _kept(zk: ZooKeeper, count: int) -> None:
    """Replaces all records by those of so many plans that have ended."""
    listed = await zk.children(own.PROCEDURES)
    ops: list[Op] = [Delete(f"{own.PROCEDURES}/{name}", ANY_VERSION) for name in (listed[0] if listed else ())]
    await in_multis(zk, iter(ops))
    if listed:
        await zk.delete(own.PROCEDURES, ANY_VERSION)
    await zk.create(own.PROCEDURES, b"%d" % count)
    await in_multis(zk, (_create(pid) for pid in range(1, count + 1)))


def _create(pid: int) -> Op:
    now_ms = wall_ms()
    moves = [PlannedMove(f"topic-{pid:05d}", n, (1, 2, 3), (4, 2, 3), status=Status.DONE) for n in range(RESULT_MOVES)]
    data = encode_plan(ReassignPlan(tuple(moves)))
    ended = Record(pid, NAME, State.SUCCESS, 0, now_ms, now_ms, done=(0,), data=data, result=b"3 done", caller=OPERATOR)
    return Create(f"{own.PROCEDURES}/{pid:0{NAME_DIGITS}}", codec.sealed(ended))


# -- W1


async def plans(sizes: Sizes, folder: Path) -> list[Row]:
    """Begins all moves at once, in turn as a procedure and by the handler."""
    taken_s: dict[bool, list[float]] = {True: [], False: []}
    cpu_s: dict[bool, list[float]] = {True: [], False: []}
    async with arena(shape(sizes.plan_shape), folder) as found:
        for number in range(2 * (sizes.rounds + 1)):
            durable = number % 4 in {1, 2}
            wall, cpu = await _begun(found, sizes.moves, durable=durable)
            if number >= 2:
                taken_s[durable].append(wall)
                cpu_s[durable].append(cpu)
                say(f"W1, {'procedure' if durable else 'handler'}: {wall:.3f} s, {cpu:.3f} s of CPU")
    what = f"a plan's {sizes.moves:,} moves begun until all brokers have acknowledged"
    row = paired(
        "W1", sizes.plan_shape, what, "s", taken_s[True], taken_s[False], goal=goal("W1"), peer_is="the bare handler"
    )
    for name, durable in (("regent", True), ("peer", False)):
        row.phases[name] = {"CPU s": sorted(cpu_s[durable])[len(cpu_s[durable]) // 2]}
    return [row]


async def _begun(found: Arena, count: int, *, durable: bool) -> tuple[float, float]:
    await found.calm()
    await _kept(found.zk, 0)
    targets = moved(found.data, count)
    async with _term(found) as controller:
        procedures = TermProcedures(controller)
        await fail_over(controller)
        await procedures.load()
        await told(controller)
        began_s, cpu_s = time.perf_counter(), time.process_time()
        if durable:
            await _as_procedure(procedures, found, targets)
        else:
            await begin(controller, {TopicPartition(*found.data.name(row)): to for row, to in targets.items()}, "bench")
        await told(controller)
        taken = time.perf_counter() - began_s, time.process_time() - cpu_s
        procedures.close("the benchmark ends")
    found.oracle.reassigns(targets)
    states = await znodes.differences(found.zk, found.oracle, await role.epoch(found.zk))
    wrong = states + await request_znodes.left_over(found.zk, found.oracle)
    if wrong:
        raise Wrong(f"W1, {'procedure' if durable else 'handler'}: " + "\n".join(wrong[:5]))
    return taken


async def _as_procedure(procedures: TermProcedures, found: Arena, targets: dict[int, tuple[int, ...]]) -> None:
    """Submits a plan without caps, and gives the engine its turns until every move has begun."""
    origins = found.data.replicas
    moves = tuple(PlannedMove(*found.data.name(row), origins[row], to) for row, to in targets.items())
    plan = ReassignPlan(moves, moves_max=len(moves), broker_moves_max=len(moves))
    engine = procedures.engine
    submitted = asyncio.ensure_future(engine.submit(NAME, encode_plan(plan), OPERATOR))
    await asyncio.sleep(0)
    await procedures.turn()
    pid = await submitted
    for _ in range(TURNS_MAX):
        if all(move.status is Status.BEGUN for move in plan_of(engine.records[pid]).moves):
            return
        await procedures.turn()
    raise Wrong(f"the plan has not begun all moves: {sentence(plan_of(engine.records[pid]))}")


@asynccontextmanager
async def _term(found: Arena) -> AsyncIterator[Controller]:
    zk = KazooZooKeeper(found.zookeeper.connect, session_timeout_ms=SESSION_MS)
    await zk.connect(30.0)
    fence = await zk.exists(paths.CONTROLLER_EPOCH)
    assert fence is not None
    controller = new_term(zk, None, await role.epoch(zk), fence.version)
    try:
        yield controller
    finally:
        await controller.channels.close()
        await controller.close()
        await zk.close()
        gc.unfreeze()
