"""All leaders of a process ask for the ISRs that they want, until they have them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import Any, Final

from brokers.simulated.broker import SimulatedBroker
from brokers.simulated.fleet import ANSWER_S_MAX, Fleet, Impossible
from brokers.simulated.isr import IsrWrite
from brokers.simulated.values import Key
from brokers.transport import Connection, TcpTransport
from metadata_store.codecs.state import decode_state
from metadata_store.errors import Code, ZkError
from state_machines.types import Leadership

ROUNDS_MAX: Final = 100


async def catch_up(fleet: Fleet, brokers: Collection[int]) -> dict[str, Any]:
    """Every replica on a live broker counts as caught up. Returns times, and what was asked for and how often."""
    known = [broker for _, broker in fleet.known(brokers)]
    began_ns = time.monotonic_ns()
    counts = await asyncio.gather(*(_leader(fleet, broker) for broker in known))
    return {
        "at_ns": began_ns,
        "done_ns": time.monotonic_ns(),
        "changes": sum(changes for changes, _ in counts),
        "requests": sum(requests for _, requests in counts),
    }


async def _leader(fleet: Fleet, broker: SimulatedBroker) -> tuple[int, int]:
    """One leader; returns how many changes it asked for, and in how many requests (or writes)."""
    live = frozenset(broker.live)

    def in_sync(key: Key) -> frozenset[int]:
        return live

    changes = requests = 0
    connection: Connection | None = None
    try:
        for _ in range(ROUNDS_MAX):
            changes += len(broker.isr.wish(in_sync))
            if not broker.isr.waiting:
                return changes, requests
            if broker.ibp.alter_partition:
                connection = connection or await _connect(fleet, broker)
                requests += 1
                await _ask(broker, connection, requests)
            else:
                requests += await _write(fleet, broker)
    finally:
        if connection is not None:
            connection.close()
    raise Impossible(f"broker {broker.id} still waits for {broker.isr.waiting} ISR changes after {ROUNDS_MAX} rounds")


async def _connect(fleet: Fleet, broker: SimulatedBroker) -> Connection:
    endpoint = await fleet.controller(broker.id)
    return await TcpTransport().connect(endpoint.host, endpoint.port, lambda: None)


async def _ask(broker: SimulatedBroker, connection: Connection, correlation: int) -> None:
    frame = broker.isr.alter_partition(correlation)
    assert frame is not None, "something waits, and nothing is in flight"
    async with asyncio.timeout(ANSWER_S_MAX):
        answer = await connection.exchange([len(frame).to_bytes(4, "big"), frame])
    if not broker.isr.answered(answer):
        raise Impossible(f"broker {broker.id} was told that it does not ask the controller")


async def _write(fleet: Fleet, broker: SimulatedBroker) -> int:
    writes = broker.isr.writes()
    for write in writes:
        broker.isr.written(write, await _written(fleet, write))
    told = broker.isr.notification()
    if told is not None:
        await fleet.zk.create(told.path, told.data, sequential=True)
    return len(writes)


async def _written(fleet: Fleet, write: IsrWrite) -> Leadership | None:
    """What the znode holds after the write, whoever wrote it."""
    data, version = write.op.data, -1
    try:
        version = (await fleet.zk.set(write.op.path, data, write.op.version)).version
    except ZkError as error:
        if error.code not in (Code.BAD_VERSION, Code.NO_NODE):
            raise
        node = await fleet.zk.get(write.op.path)
        if node is None:
            return None
        data, version = node.data, node.stat.version
    state = decode_state(data, version)
    return state if isinstance(state, Leadership) else None
