"""Measures Z1 and Z2: reads and writes of state znodes per second, through the store and singly through kazoo."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from kazoo.client import KazooClient

from benchmarks.arena import Arena, say
from benchmarks.plan import goal
from benchmarks.results import Row, Sample
from metadata_store import paths
from metadata_store.fencing.outcome import Fence
from metadata_store.kafka_store import KafkaStore
from state_machines.model.decision import Change
from state_machines.model.types import Assignment, Leadership, PartitionRow, PartitionState

ROUNDS: Final = 5
SINGLES_SHARE: Final = 4
"""kazoo's rounds take one of this number of partitions, because a whole pass would take minutes."""
WINDOW: Final = 1_000
"""Number of single requests in flight."""


async def speeds(arena: Arena) -> list[Row]:
    """Plays rounds of the store and of kazoo in turn."""
    store = KafkaStore(arena.zk)
    client = await asyncio.to_thread(_client, arena.zookeeper.connect)
    names = [arena.data.name(row) for row in range(len(arena.data.replicas))]
    singly = names[::SINGLES_SHARE]
    rates: dict[str, list[float]] = {"read": [], "read singly": [], "write": [], "write singly": []}
    try:
        for number in range(ROUNDS + 1):
            rates["read"].append(await _reads(store, names))
            rates["read singly"].append(await asyncio.to_thread(_single_reads, client, singly))
            rates["write"].append(await _writes(store, arena, names))
            rates["write singly"].append(await asyncio.to_thread(_single_writes, client, singly))
            say(f"znodes a second, round {number}: " + ", ".join(f"{k} {v[-1]:,.0f}" for k, v in rates.items()))
    finally:
        await asyncio.to_thread(client.stop)
    size = arena.data.shape.name
    return [
        _row("Z1", size, "state znodes read and decoded", rates["read"], rates["read singly"]),
        _row("Z2", size, "conditional, fenced writes of state znodes", rates["write"], rates["write singly"]),
    ]


def _row(case: str, size: str, what: str, ours: Sequence[float], peer: Sequence[float]) -> Row:
    return Row(
        case,
        size,
        what,
        "per second",
        Sample.of(ours[1:], ours[0]),
        Sample.of(peer[1:], peer[0]),
        goal(case, size),
        higher_is_better=True,
        peer_is=f"kazoo, single requests, {WINDOW} in flight",
    )


async def _reads(store: KafkaStore, names: Sequence[tuple[str, int]]) -> float:
    began_s = time.perf_counter()
    found = await store.load_states(names)
    took_s = time.perf_counter() - began_s
    assert all(isinstance(state, Leadership) for state in found)
    return len(names) / took_s


async def _writes(store: KafkaStore, arena: Arena, names: Sequence[tuple[str, int]]) -> float:
    """Returns writes of the same states, each on the condition of its version and of the controller epoch's."""
    states = await store.load_states(names)
    epoch = await store.zk.exists(paths.CONTROLLER_EPOCH)
    assert epoch is not None
    changes = list(_changes(arena, states))
    began_s = time.perf_counter()
    applied = 0
    async for outcome in store.commit(changes, names.__getitem__, Fence(epoch.version, lambda: True)):
        applied += len(outcome.applied)
    took_s = time.perf_counter() - began_s
    assert applied == len(changes), f"{applied} of {len(changes)} were written"
    return applied / took_s


def _changes(arena: Arena, states: Sequence[object]) -> Iterator[Change]:
    for i, (replicas, state) in enumerate(zip(arena.data.replicas, states, strict=True)):
        assert isinstance(state, Leadership)
        online = PartitionState.ONLINE
        fields = (0, i, Assignment(replicas), online, state.leader, state.leader_epoch, state.isr, 1)
        yield Change(i, PartitionRow(*fields, state.version), PartitionRow(*fields, state.version + 1), "benchmark")


def _client(connect: str) -> Any:
    client = KazooClient(hosts=connect, timeout=60.0)
    client.start()
    return client


def _single_reads(client: Any, names: Sequence[tuple[str, int]]) -> float:
    return _windowed(names, lambda name: client.get_async(paths.state(*name)))


def _single_writes(client: Any, names: Sequence[tuple[str, int]]) -> float:
    pending = [(name, client.get_async(paths.state(*name))) for name in names]
    nodes = {name: result.get(timeout=60.0) for name, result in pending}

    def write(name: tuple[str, int]) -> Any:
        data, stat = nodes[name]
        return client.set_async(paths.state(*name), data, version=stat.version)

    return _windowed(names, write)


def _windowed(names: Sequence[tuple[str, int]], send: Callable[[tuple[str, int]], Any]) -> float:
    """Returns requests per second with at most ``WINDOW`` in flight."""
    began_s = time.perf_counter()
    waiting: deque[Any] = deque()
    for name in names:
        if len(waiting) == WINDOW:
            waiting.popleft().get(timeout=60.0)
        waiting.append(send(name))
    while waiting:
        waiting.popleft().get(timeout=60.0)
    return len(names) / (time.perf_counter() - began_s)
