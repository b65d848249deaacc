"""Lets all leaders of a process request the ISRs that they want, until they have them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from typing import Any, Final

from brokers.transport import Connection, TcpTransport
from metadata_store.codecs.topic import decode_state
from metadata_store.errors import Code, ZkError
from state_machines.model.types import Endpoint, Leadership
from testing.simulated.broker import SimulatedBroker
from testing.simulated.fleet import RESPONSE_S_MAX, Fleet, Impossible
from testing.simulated.isr import IsrWrite
from testing.simulated.values import Key

ROUNDS_MAX: Final = 100


class Leader:
    """A broker that may want ISR changes, and its connection to the controller, if it has one."""

    def __init__(self, broker: SimulatedBroker, connection: Connection | None) -> None:
        self.broker = broker
        self.connection = connection


async def prepare(fleet: Fleet, brokers: Collection[int], controller: Endpoint | None = None) -> list[Leader]:
    """Reads each broker's view and connects those that lead something to the controller.

    ``controller``: its endpoint, if not the one that the brokers themselves find.
    """
    known = [broker for _, broker in fleet.known(brokers)]
    return list(await asyncio.gather(*(_leader(fleet, broker, controller) for broker in known)))


async def _leader(fleet: Fleet, broker: SimulatedBroker, controller: Endpoint | None) -> Leader:
    leads = any(replica.leader == broker.id for replica in broker.replicas.values())
    if not leads or not broker.ibp.alter_partition:
        return Leader(broker, None)
    endpoint = controller or await fleet.controller(broker.id)
    return Leader(broker, await TcpTransport().connect(endpoint.host, endpoint.port, lambda: None))


async def catch_up(fleet: Fleet, leaders: Sequence[Leader]) -> dict[str, Any]:
    """Counts every replica on a live broker as caught up. Returns times, and the numbers of changes and requests."""
    began_ns = time.monotonic_ns()
    try:
        counts = await asyncio.gather(*(_request_all(fleet, leader) for leader in leaders))
    finally:
        for leader in leaders:
            if leader.connection is not None:
                leader.connection.close()
    return {
        "at_ns": began_ns,
        "done_ns": time.monotonic_ns(),
        "changes": sum(changes for changes, _ in counts),
        "requests": sum(requests for _, requests in counts),
    }


async def _request_all(fleet: Fleet, leader: Leader) -> tuple[int, int]:
    """Requests the changes of one leader; returns how many changes, and in how many requests (or writes)."""
    broker = leader.broker
    live = frozenset(broker.live)

    def in_sync(key: Key) -> frozenset[int]:
        return live

    changes = requests = 0
    for _ in range(ROUNDS_MAX):
        changes += len(broker.isr.wish(in_sync))
        if not broker.isr.waiting:
            return changes, requests
        if leader.connection is not None:
            requests += 1
            await _request(broker, leader.connection, requests)
        else:
            requests += await _write(fleet, broker)
    raise Impossible(f"broker {broker.id} still waits for {broker.isr.waiting} ISR changes after {ROUNDS_MAX} rounds")


async def _request(broker: SimulatedBroker, connection: Connection, correlation: int) -> None:
    frame = broker.isr.alter_partition(correlation)
    assert frame is not None, "something waits, and nothing is in flight"
    async with asyncio.timeout(RESPONSE_S_MAX):
        response = await connection.exchange([len(frame).to_bytes(4, "big"), frame])
    if not broker.isr.take_response(response):
        raise Impossible(f"broker {broker.id} sent AlterPartition to a broker that is not the controller")


async def _write(fleet: Fleet, broker: SimulatedBroker) -> int:
    writes = broker.isr.writes()
    for write in writes:
        broker.isr.written(write, await _written(fleet, write))
    notification = broker.isr.notification()
    if notification is not None:
        await fleet.zk.create(notification.path, notification.data, sequential=True)
    return len(writes)


async def _written(fleet: Fleet, write: IsrWrite) -> Leadership | None:
    """Returns the znode's state after the write, whichever writer was last."""
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
