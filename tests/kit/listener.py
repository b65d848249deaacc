"""A controller listener on a real socket, a double of its handlers, and peers that are brokers or not."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from brokers.listener.controller_listener import ControllerListener, NotController
from brokers.listener.envelopes import CarriedCall
from brokers.listener.inbound import ListenerLimits
from brokers.wire.calls import AllocateProducerIdsCall, AlterPartitionCall, Call, ControlledShutdownCall
from brokers.wire.replies import (
    AllocateProducerIdsReply,
    AlterPartitionReply,
    ControlledShutdownReply,
    PartitionReply,
)
from tests.kit.deadlines import eventually
from tests.kit.wire import part, read_response, to_uuid, write_request

TOPIC_ID = bytes(range(1, 17))
SHUTDOWN, VERSIONS, ALTER, ALLOCATE = 7, 18, 56, 67
PATIENT = {"frame_timeout_ms": 600_000}
"""Limits that no pause of a machine reaches, unless a test gives others."""


class HandlersDouble:
    """Handles calls; ``gate`` delays replies, ``error`` is raised instead of one."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.finished = 0
        self.at_once_max = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.remaining = [("left", 4)]
        self.known: set[tuple[int, int]] | None = None

    async def _handle(self, call: Call) -> None:
        self.calls.append(call)
        self.at_once_max = max(self.at_once_max, len(self.calls) - self.finished)
        await self.gate.wait()
        self.finished += 1
        if self.error is not None:
            raise self.error

    def registered(self, broker: int, epoch: int) -> bool:
        return self.known is None or (broker, epoch) in self.known

    async def admits(self, principal: str, client_host: str) -> bool:
        return True

    async def carried(self, call: CarriedCall) -> Struct:
        raise NotController

    async def controlled_shutdown(self, call: ControlledShutdownCall) -> ControlledShutdownReply:
        await self._handle(call)
        return ControlledShutdownReply(0, self.remaining)

    async def alter_partition(self, call: AlterPartitionCall) -> AlterPartitionReply:
        await self._handle(call)
        states = [PartitionReply(p.topic, p.partition, 0, 1, 5, p.isr, p.partition_epoch + 1) for p in call.proposals]
        return AlterPartitionReply(0, states)

    async def allocate_producer_ids(self, call: AllocateProducerIdsCall) -> AllocateProducerIdsReply:
        await self._handle(call)
        return AllocateProducerIdsReply(0, 7_000, 1_000)


class Peer:
    """A connection to the listener."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.correlation = 0

    async def call(self, key: int, version: int, **fields: object) -> Any:
        """Sends a call; returns its response, read with kio."""
        self.send(self.frame(key, version, **fields))
        return await self.response(key, version)

    def frame(self, key: int, version: int, **fields: object) -> bytes:
        """Returns the request of a call, with the next correlation id."""
        self.correlation += 1
        return write_request(key, version, self.correlation, "2", **fields)

    async def allocate(self, broker: int = 1) -> Any:
        """Calls AllocateProducerIds; returns the response."""
        return await self.call(ALLOCATE, 0, broker_id=broker, broker_epoch=1)

    def begin(self, key: int = ALLOCATE, version: int = 0, **fields: object) -> None:
        """Sends a call of broker 1, by default AllocateProducerIds."""
        self.send(self.frame(key, version, **(fields or {"broker_id": 1, "broker_epoch": 1})))

    def send(self, frame: bytes) -> None:
        """Sends a frame with its length."""
        self.writer.write(len(frame).to_bytes(4, "big") + frame)

    async def response(self, key: int, version: int) -> Any:
        """Reads the response to the last request."""
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        correlation, entity = read_response(key, version, await self.reader.readexactly(size))
        assert correlation == self.correlation
        return entity

    async def closed(self) -> bool:
        """Waits until the listener closes the connection, and drops what it still sends."""
        try:
            async with asyncio.timeout(60):
                while await self.reader.read(65_536):
                    pass
        except ConnectionError:
            pass
        self.writer.close()
        return True


class Desk:
    """A listener, the double of its handlers, and connections to it."""

    def __init__(self, listener: ControllerListener, double: HandlersDouble) -> None:
        self.listener = listener
        self.double = double
        self.peers: list[Peer] = []

    async def connect(self) -> Peer:
        """Opens a connection."""
        self.peers.append(Peer(*await asyncio.open_connection("127.0.0.1", self.listener.port)))
        return self.peers[-1]

    async def in_progress(self, calls: int = 1) -> None:
        """Waits until the handlers have so many calls."""
        await eventually(lambda: len(self.double.calls) == calls)

    async def left(self, connections: int = 0) -> None:
        """Waits until so many connections are left."""
        await eventually(lambda: self.listener.connections == connections)


@asynccontextmanager
async def desk(*, serving: bool = True, **limits: int) -> AsyncIterator[Desk]:
    """Starts a listener on a free port."""
    listener, double = ControllerListener("127.0.0.1", 0, ListenerLimits(**PATIENT | limits)), HandlersDouble()
    await listener.start()
    if serving:
        listener.serve(double)
    made = Desk(listener, double)
    try:
        yield made
    finally:
        double.gate.set()
        for peer in made.peers:
            peer.writer.close()
        await listener.stop()


def isr_change(version: int = 3, partitions: int = 1) -> dict[str, Any]:
    """Returns the fields of an AlterPartition; one of thousands of partitions is read beside the loop."""
    members = tuple(part(ALTER, 3, "BrokerState", broker_id=b, broker_epoch=-1) for b in (1, 2))
    fields: dict[str, Any] = {
        "partition_index": 3,
        "leader_epoch": 5,
        "new_isr": (1, 2),
        "new_isr_with_epochs": members,
    }
    partition = part(ALTER, version, "PartitionData", leader_recovery_state=0, partition_epoch=8, **fields)
    topic_id = to_uuid(TOPIC_ID)
    topic = part(ALTER, version, "TopicData", topic_name="t", topic_id=topic_id, partitions=(partition,))
    topic = dataclasses.replace(topic, partitions=topic.partitions * partitions)
    return {"broker_id": 1, "broker_epoch": 57, "topics": (topic,)}
