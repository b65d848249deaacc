"""Writes a data set to ZooKeeper in multis, restores it between rounds, and reads it for comparison."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from benchmarks.datasets import DataSet, topic_id
from benchmarks.oracle import Oracle, State, initial
from metadata_store import paths
from metadata_store.codecs.topic import topic_id_text
from metadata_store.port import ANY_VERSION, Create, Node, Op, SetData, ZooKeeper
from testing.znodes import PERSISTENT_WITH_PARENTS

OPS_PER_MULTI = 1_000
MULTIS_IN_FLIGHT = 4
BASE_EPOCH = 1
"""Controller epoch of the states as they are written."""


class _State(msgspec.Struct, gc=False):
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int


_decode = msgspec.json.Decoder(_State).decode


async def lay_out(zk: ZooKeeper) -> None:
    """Creates the parents that every cluster has."""
    for path in PERSISTENT_WITH_PARENTS:
        await zk.create(path, None)


async def write(zk: ZooKeeper, data: DataSet) -> None:
    """Writes all topics and state znodes of an empty cluster."""
    await in_multis(zk, creates(data))


def creates(data: DataSet) -> Iterator[Op]:
    """Yields every topic and state znode, parents first."""
    for number, name in enumerate(data.topics):
        placed = data.replicas[data.rows_of(number)]
        yield Create(paths.topic(name), topic_text(name, placed))
        yield Create(paths.partitions(name), None)
        for partition, replicas in enumerate(placed):
            yield Create(paths.partition(name, partition), None)
            yield Create(paths.state(name, partition), state_text(replicas[0], 0, replicas))


def topic_text(name: str, placed: Sequence[tuple[int, ...]]) -> bytes:
    """Returns a topic znode as brokers write it."""
    fields = {
        "version": 3,
        "topic_id": topic_id_text(topic_id(name)),
        "partitions": {str(number): replicas for number, replicas in enumerate(placed)},
        "adding_replicas": {},
        "removing_replicas": {},
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def state_text(leader: int, epoch: int, isr: Iterable[int], controller_epoch: int = BASE_EPOCH) -> bytes:
    """Returns a state znode as brokers write it."""
    return (
        f'{{"controller_epoch":{controller_epoch},"leader":{leader},"version":1,"leader_epoch":{epoch},'
        f'"isr":[{",".join(map(str, isr))}]}}'
    ).encode()


async def put_back(zk: ZooKeeper, oracle: Oracle, displaced: int = 0) -> Oracle:
    """Restores the changed rows; returns the expectation of the next round.

    ``displaced``: number of rows that are led by their second replica. Created topics must be gone.
    """
    data, versions = oracle.data, [state.version for state in oracle.states]
    ops: list[Op] = []
    for row in sorted(oracle.changed | set(range(displaced))):
        replicas = data.replicas[row]
        text = state_text(replicas[row < displaced], 0, replicas)
        ops.append(SetData(paths.state(*data.name(row)), text, ANY_VERSION))
        versions[row] += 1
    for number in sorted({row // data.shape.per_topic for row in oracle.rewritten}):
        name, placed = data.topics[number], data.replicas[data.rows_of(number)]
        ops.append(SetData(paths.topic(name), topic_text(name, placed), ANY_VERSION))
    await in_multis(zk, iter(ops))
    return initial(data, versions, displaced=displaced)


async def in_multis(zk: ZooKeeper, ops: Iterator[Op]) -> None:
    """Writes all operations, some multis at a time, in an order that respects their dependencies."""
    under_way: set[asyncio.Task[int]] = set()
    while batch := list(islice(ops, OPS_PER_MULTI)):
        if len(under_way) == MULTIS_IN_FLIGHT:
            done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        under_way.add(asyncio.ensure_future(_apply(zk, batch)))
        await asyncio.sleep(0)
    for task in under_way:
        await task


async def _apply(zk: ZooKeeper, ops: list[Op]) -> int:
    return await zk.apply(ops)


async def differences(
    zk: ZooKeeper, oracle: Oracle, epoch: int, rows: Iterable[int] | None = None, *, shown_max: int = 5
) -> list[str]:
    """Lists the first unexpected state znodes; ``epoch`` is that of the present term."""
    data = oracle.data
    wanted = list(rows) if rows is not None else list(range(len(data.replicas)))
    found = await zk.read_many([paths.state(*data.name(row)) for row in wanted])
    wrong: list[str] = []
    for row, node in zip(wanted, found, strict=True):
        expected = oracle.states[row], epoch if row in oracle.changed else BASE_EPOCH
        state = _state(node) if isinstance(node, Node) else None
        if state != expected:
            wrong.append(f"{data.name(row)}: {state if state is not None else node} where {expected} is right")
            if len(wrong) == shown_max:
                break
    return wrong


def _state(node: Node) -> tuple[State, int]:
    found = _decode(node.data or b"")
    return State(found.leader, found.leader_epoch, found.isr, node.stat.version), found.controller_epoch
