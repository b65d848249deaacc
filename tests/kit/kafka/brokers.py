"""Brokers: sockets that respond as a test chooses, and simulated ones that were sent leaderships and metadata."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Self

from kio.schema.errors import ErrorCode
from msgspec import Struct

from brokers.wire.versions import Api, Ibp
from state_machines.model.types import Broker, Endpoint
from testing.simulated.broker import SimulatedBroker
from testing.simulated.values import (
    Head,
    Key,
    LeaderAndIsr,
    LeaderAndIsrEntry,
    MetadataEntry,
    StopEntry,
    StopReplica,
    UpdateMetadata,
)
from tests.kit.wire import read_request, write_response

LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 4, 5, 6
LISTENER = "INTERNAL"

Respond = Callable[[int, Any], dict[str, Any]]
"""API key and kio's request -> fields of the response; a field that is left out has no error."""


def refuse_stale(api: int, entity: Any) -> dict[str, Any]:
    """Refuses a request for the broker's earlier incarnation (KIP-380)."""
    return {"error_code": ErrorCode.stale_broker_epoch}


class Request(Struct):
    """One request: its API key, version, correlation id and kio's entity."""

    api: int
    version: int
    correlation: int
    entity: Any

    def states(self) -> dict[tuple[str, int], Any]:
        """Returns kio's entry of each partition."""
        return {(t.topic_name, p.partition_index): p for t in self.entity.topic_states for p in t.partition_states}

    def partitions(self) -> list[tuple[str, int]]:
        """Returns topic and partition of every entry, in order."""
        return [(t.topic_name, p.partition_index) for t in self.entity.topic_states for p in t.partition_states]

    def epochs(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Returns (leader epoch, partition epoch) by partition."""
        field = "zk_version" if self.api == UPDATE_METADATA else "partition_epoch"
        return {key: (state.leader_epoch, getattr(state, field)) for key, state in self.states().items()}


class FakeBroker:
    """``async with FakeBroker(1) as broker``. ``hold`` delays responses; a ``mute`` broker reads on and sends none."""

    def __init__(self, broker_id: int, epoch: int = 100, rack: str | None = None) -> None:
        self.id = broker_id
        self.epoch = epoch
        self.rack = rack
        self.requests: list[Request] = []
        self.connections = 0
        self.respond: Respond = lambda api, entity: {}
        self.raw_response: bytes | None = None
        self.let_go = asyncio.Event()
        self.let_go.set()
        self.mute = False
        self.in_flight_max = 0
        self.port = 0
        self._mark = 0
        self._in_flight: Counter[asyncio.StreamWriter] = Counter()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.let_go.set()
        await self.stop_listening()

    async def listen(self) -> None:
        """Accepts connections, on the same port as before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop_listening(self) -> None:
        """Refuses connections and cuts those that are open."""
        if self._server is not None:
            self._server.close()
        self.cut()
        await asyncio.gather(*self._serving, return_exceptions=True)
        self._server = None

    def cut(self) -> None:
        """Cuts every open connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    @property
    def connected(self) -> bool:
        """Returns whether a connection is open."""
        return bool(self._writers)

    def hold(self) -> None:
        """Delays responses until ``let_go`` is set."""
        self.let_go.clear()

    def registration(self) -> Broker:
        """Returns the broker's registration."""
        endpoints = (Endpoint("CLIENT", "127.0.0.1", 1), Endpoint(LISTENER, "127.0.0.1", self.port))
        return Broker(self.id, self.epoch, endpoints, self.rack)

    def of(self, api: int) -> list[Request]:
        """Returns the requests of one API so far."""
        return [request for request in self.requests if request.api == api]

    def mark(self) -> None:
        """Leaves all requests so far out of :meth:`apis`."""
        self._mark = len(self.requests)

    def apis(self) -> str:
        """Returns the order of the requests since the mark: U (live list alone), u (partitions), L, S."""
        letters = {LEADER_AND_ISR: "L", STOP_REPLICA: "S"}
        recent = self.requests[self._mark :]
        return "".join(letters.get(one.api) or ("u" if one.entity.topic_states else "U") for one in recent)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                await self._take(await reader.readexactly(size), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _take(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        header, entity = read_request(frame)
        api, version = header.request_api_key, header.request_api_version
        stale = entity.broker_epoch < self.epoch
        if not stale:
            self.requests.append(Request(api, version, header.correlation_id, entity))
        self._in_flight[writer] += 1
        self.in_flight_max = max(self.in_flight_max, self._in_flight[writer])
        await self.let_go.wait()
        self._in_flight[writer] -= 1
        if not self.mute:
            response = self.raw_response
            if response is None:
                respond = refuse_stale if stale else self.respond
                response = _response(api, version, header.correlation_id, respond(api, entity))
            writer.write(len(response).to_bytes(4, "big") + response)


def _response(api: int, version: int, correlation: int, differing: dict[str, Any]) -> bytes:
    fields: dict[str, Any] = {"error_code": ErrorCode.none}
    if api == LEADER_AND_ISR:
        fields["topics" if version >= 5 else "partition_errors"] = ()
    elif api == STOP_REPLICA:
        fields["partition_errors"] = ()
    return write_response(api, version, correlation, **(fields | differing))


ID = bytes(range(1, 17))
KEY: Key = ("orders", 0)
CONTROLLER = 1_000_001
CONTROLLER_EPOCH = 5
EPOCH = 10


def head(api: Api, version: int, broker_epoch: int = -1, controller_epoch: int = CONTROLLER_EPOCH) -> Head:
    return Head(api, version, 1, "c", CONTROLLER, False, controller_epoch, broker_epoch)


def lead(
    partition: int = 0,
    *,
    leader: int = 1,
    epoch: int = 4,
    isr: tuple[int, ...] = (1, 2, 3),
    topic_id: bytes | None = ID,
    controller_epoch: int = CONTROLLER_EPOCH,
    partition_epoch: int = 6,
) -> LeaderAndIsrEntry:
    """Returns the entry of a partition of topic orders on brokers 1, 2 and 3."""
    replicas = (1, 2, 3)
    return LeaderAndIsrEntry(
        "orders", topic_id, partition, controller_epoch, leader, epoch, isr, partition_epoch, replicas
    )


def leaders(*entries: LeaderAndIsrEntry, controller_epoch: int = CONTROLLER_EPOCH) -> LeaderAndIsr:
    return LeaderAndIsr(head(Api.LEADER_AND_ISR, 7, controller_epoch=controller_epoch), 0, list(entries))


def metadata(
    *entries: MetadataEntry, live: Iterable[int] = (1, 2, 3), controller_epoch: int = CONTROLLER_EPOCH
) -> UpdateMetadata:
    listed = (*live, CONTROLLER)
    brokers = tuple(Broker(b, -1, (Endpoint("INTERNAL", "127.0.0.1", 9_000 + b % 100),)) for b in listed)
    topics = {entry.topic: entry.topic_id for entry in entries}
    return UpdateMetadata(
        head(Api.UPDATE_METADATA, 8, controller_epoch=controller_epoch), 0, list(entries), topics, brokers
    )


def known(entry: LeaderAndIsrEntry, offline: tuple[int, ...] = ()) -> MetadataEntry:
    """Returns the same partition as an entry of UpdateMetadata."""
    return MetadataEntry(
        entry.topic,
        entry.topic_id,
        entry.partition,
        entry.controller_epoch,
        entry.leader,
        entry.leader_epoch,
        entry.isr,
        entry.partition_epoch,
        entry.replicas,
        offline,
    )


def stop(partition: int = 0, *, epoch: int = 4, delete: bool = False) -> StopReplica:
    return StopReplica(head(Api.STOP_REPLICA, 4), [StopEntry("orders", partition, epoch, delete)])


def broker_with(
    *entries: LeaderAndIsrEntry,
    live: Iterable[int] = (1, 2, 3),
    ibp: str = "3.9",
    broker: SimulatedBroker | None = None,
    broker_id: int = 1,
) -> SimulatedBroker:
    """Returns a broker that was sent the live list, and leadership and metadata of these partitions."""
    found = broker or SimulatedBroker(broker_id, EPOCH, ibp=Ibp.parse(ibp))
    assert found.apply(metadata(live=live))[0] == 0
    error, errors = found.apply(leaders(*entries))
    assert error == 0
    assert not any(errors.values()), errors
    assert found.apply(metadata(*map(known, entries), live=live))[0] == 0
    return found
