"""Applies plans of moves in the controller's world and begins rolling restarts, and plays the brokers that follow."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from controller.kafka.procedures.reassign import NAME, TOGETHER_MS, PlanCommand, encode_plan, plan_of
from metadata_store import paths
from state_machines.decisions.plan_progress import PlannedMove, ReassignPlan, Status
from state_machines.model.min_isr import MinIsr
from state_machines.procedures.record import Caller, Record
from tests.kit.kafka.reassignments import caught_up, propagated, written
from tests.kit.kafka.world import KafkaWorld

OPS = Caller(principal="User:ops", nonce="one")
PARTITIONS = 6
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


# -- plans of moves


async def running(w: KafkaWorld) -> None:
    """Topics a and b have partitions on brokers 1 and 2, led by 1."""
    for topic in "ab":
        await w.topic(topic, *[(1, 2)] * (PARTITIONS // 2), leaders=True)
    await w.begin_term()
    await propagated(w)
    w.forget()


def moves(target: Sequence[int] = (3, 4)) -> tuple[PlannedMove, ...]:
    names = [(topic, number) for topic in "ab" for number in range(PARTITIONS // 2)]
    return tuple(PlannedMove(topic, number, (1, 2), tuple(target)) for topic, number in names)


async def applied(w: KafkaWorld, plan: ReassignPlan, caller: Caller = OPS) -> int:
    pid = await w.term.procedures.engine.submit(NAME, encode_plan(plan), caller)
    await w.settle()
    return pid


def record(w: KafkaWorld, pid: int) -> Record:
    return w.term.procedures.engine.records[pid]


def statuses(w: KafkaWorld, pid: int) -> list[Status]:
    return [move.status for move in plan_of(record(w, pid)).moves]


def moving(w: KafkaWorld) -> set[tuple[str, int]]:
    return {(move.topic, move.partition) for move in moves() if written(w, move.topic, move.partition).moving}


def placed(w: KafkaWorld) -> list[tuple[int, ...]]:
    return [written(w, move.topic, move.partition).replicas for move in moves()]


async def finished(w: KafkaWorld, pid: int) -> Record:
    """Plays brokers until the plan has ended."""
    for _ in range(2 * PARTITIONS):
        if record(w, pid).state.is_final:
            break
        await caught_up(w)
        await asyncio.sleep(6)
        await w.settle()
    return record(w, pid)


async def commanded(w: KafkaWorld, pid: int, **command: object) -> None:
    data = msgspec.json.encode(PlanCommand(**command))  # type: ignore[arg-type]
    assert await w.term.procedures.engine.command(pid, data)
    await w.settle()


async def aborted(w: KafkaWorld, pid: int) -> None:
    assert await w.term.procedures.engine.abort(pid)
    await w.settle()


def config(w: KafkaWorld, kind: str, name: str) -> dict[str, str]:
    node = w.node(paths.config(kind, name))
    return {} if node is None else dict(msgspec.json.decode(node.data or b"")["config"])


def throttled(w: KafkaWorld) -> set[str]:
    """Returns the entities that have a setting of a throttle."""
    entities = [("brokers", str(b)) for b in range(1, 5)] + [("topics", topic) for topic in "ab"]
    return {f"{kind} {name}" for kind, name in entities if {*RATES, *LISTS} & config(w, kind, name).keys()}


async def in_isr(w: KafkaWorld, topic: str, partition: int, *brokers: int) -> None:
    """Has the leader take replicas into the ISR."""
    state = w.states[topic, partition]
    await w.alter_partition(state.leader, w.proposal(topic, partition, (*state.isr, *brokers)))
    await gathered(w)


async def gathered(w: KafkaWorld) -> None:
    """Waits until a plan has looked at its lists again."""
    await w.settle()
    await asyncio.sleep(TOGETHER_MS / 1000)
    await w.settle()


# -- rolling restarts


async def begun(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2, 3), (2, 3, 1), (3, 1, 2), leaders=True)
    await serving(w)


async def serving(w: KafkaWorld) -> None:
    """Begins a term, which knows the brokers' min.insync.replicas."""
    await w.begin_term()
    w.term.cluster.min_isr = MinIsr(2, {})
    await propagated(w)


async def passes(w: KafkaWorld, seconds: float = 3.0) -> None:
    await w.settle()
    await asyncio.sleep(seconds)
    await w.settle()


async def in_sync(w: KafkaWorld) -> None:
    """Leaders take all replicas of live brokers into the ISR."""
    for (topic, number), state in w.states.items():
        absent = [b for b in w.assignment(topic).partitions[number].replicas if b not in state.isr and b in w.brokers]
        if absent and state.leader in w.brokers:
            await w.alter_partition(state.leader, w.proposal(topic, number, isr=(*state.isr, *absent)))
    await w.settle()


async def restarted(w: KafkaWorld, broker: int) -> None:
    await w.bounce(broker)
    await w.settle()
    await in_sync(w)
    await propagated(w)
