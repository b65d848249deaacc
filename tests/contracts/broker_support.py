"""Provides the contract's controller, which sends raw requests, and the broker that receives them.

kio reads every response in full; the product encodes every request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Any, NamedTuple, Protocol

from brokers.wire import kio_messages
from brokers.wire.log_dirs import encode_log_dirs, read_log_dirs
from brokers.wire.partitions import PartitionEncoder, body, head, metadata_tail, topic_piece
from brokers.wire.primitives import compact_string
from brokers.wire.requests import EMPTY_BODY, Requests, live_list
from brokers.wire.versions import Api, Ibp
from state_machines.model.types import Assignment, Broker, Endpoint, PartitionRow, PartitionState, Topic

CONTROLLER = 1_000_001
KNOWN_BROKERS = (1, 2, 3)
"""Brokers of the live list. Broker 1 receives the requests; at the addresses of the others no process listens."""
OLD, NEW = Ibp.parse("2.7-IV1"), Ibp.parse("3.9")
ID, OTHER_ID = b"1" * 16, b"2" * 16
OWN_ID = b""
"""Stands for the topic id of the director."""
CLOSED_PORT = 1
"""A port without a listener."""

_STOP = Struct(">ii?x").pack

Errors = dict[int, int]
"""Error by partition."""


class Response(NamedTuple):
    """Top-level error, and the error of each partition that the response lists."""

    top: int
    each: Errors


class Known(NamedTuple):
    """A partition as the broker sends it to clients."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


class Logged(NamedTuple):
    """The log of a partition on a log directory."""

    size_bytes: int
    offset_lag: int
    is_future: bool


class Logs(NamedTuple):
    """The distinct errors of the log directories, and the listed logs of the topic by partition."""

    errors: list[int]
    each: dict[int, Logged]


class Subject(Protocol):
    """A broker with id 1 that has no controller but the test."""

    @property
    def epoch(self) -> int:
        """Returns the broker epoch."""

    async def exchange(self, frame: bytes) -> bytes:
        """Sends a request and returns its response, both without their lengths."""

    async def restart(self) -> None:
        """Restarts the broker with a higher epoch and its logs."""

    async def metadata(self, topic: str) -> tuple[bytes | None, dict[int, Known]]:
        """Returns id and partitions of a topic in the metadata; none where the broker does not know the topic."""

    async def live(self) -> tuple[int, frozenset[int]]:
        """Returns controller and live brokers in the metadata."""

    async def fail_log(self, topic: str, partition: int) -> None:
        """Fails the log directory that holds a partition's log."""

    async def repair_logs(self) -> None:
        """Repairs the log directories and restarts the broker."""


class Director:
    """Sends requests about one topic to the subject. ``controller_epoch`` rises with :meth:`rise`."""

    def __init__(
        self,
        subject: Subject,
        topic: str,
        controller_epoch: int,
        ibp: Ibp,
        *,
        topic_id: bytes = ID,
        controller_port: int = CLOSED_PORT,
    ) -> None:
        self.subject = subject
        self.topic_id = topic_id
        self._controller_port = controller_port
        self.topic = topic
        self.controller_epoch = controller_epoch
        self.ibp = ibp
        self._correlation = 0

    # -- requests of a test

    async def lead(
        self,
        epochs: Mapping[int, int] | int = 0,
        *,
        leader: int = 1,
        replicas: tuple[int, ...] = (1, 2, 3),
        partition_epoch: int = 0,
        topic_id: bytes | None = OWN_ID,
        is_new: bool = True,
        **envelope: Any,
    ) -> Response:
        """Sends LeaderAndIsr with these leader epochs by partition (a number: partition 0)."""
        encoder = PartitionEncoder(envelope.get("ibp", self.ibp))
        rows = [
            self._row(partition, leader, epoch, replicas, partition_epoch)
            for partition, epoch in ({0: epochs} if isinstance(epochs, int) else epochs).items()
        ]
        entries = [head(row) + encoder.leader_and_isr_tail(row, is_new=is_new) for row in rows]
        known = encoder.topic(self._topic(topic_id))
        return await self._send(Api.LEADER_AND_ISR, body([topic_piece(known, entries)]), **envelope)

    async def update(
        self,
        epochs: Mapping[int, int] | None = None,
        *,
        leader: int = 1,
        live: Iterable[int] = KNOWN_BROKERS,
        topic_id: bytes | None = OWN_ID,
        **envelope: Any,
    ) -> Response:
        """Sends UpdateMetadata with these leader epochs by partition, or the live list alone."""
        encoded = EMPTY_BODY
        if epochs is not None:
            encoder = PartitionEncoder(envelope.get("ibp", self.ibp))
            rows = [self._row(partition, leader, epoch, (1, 2, 3), 0) for partition, epoch in epochs.items()]
            known = encoder.topic(self._topic(topic_id))
            encoded = body([topic_piece(known, [head(row) + metadata_tail(()) for row in rows])])
        ports = {**dict.fromkeys(live, CLOSED_PORT), CONTROLLER: self._controller_port}
        listed = [Broker(b, 1, (Endpoint("INTERNAL", "127.0.0.1", port),)) for b, port in ports.items()]
        return await self._send(Api.UPDATE_METADATA, encoded, live=live_list(listed), **envelope)

    async def stop(self, epochs: Mapping[int, int] | int, *, delete: bool = False, **envelope: Any) -> Response:
        """Sends StopReplica with these leader epochs by partition (a number: partition 0)."""
        named = {0: epochs} if isinstance(epochs, int) else epochs
        entries = [
            p.to_bytes(4, "big") + e.to_bytes(4, "big", signed=True) + bytes((delete, 0)) for p, e in named.items()
        ]
        stopped = body([topic_piece(compact_string(self.topic), entries)])
        return await self._send(Api.STOP_REPLICA, stopped, **envelope)

    async def logs(self, partitions: Iterable[int] | None = (), *, version: int = 4) -> Logs:
        """Requests the log directories with these partitions of the topic; None: with all logs of the broker."""
        self._correlation += 1
        wanted = None if partitions is None else {self.topic: tuple(partitions)}
        request = encode_log_dirs(version, self._correlation, "contract", wanted)
        response = read_log_dirs(version, await self.subject.exchange(request[4:]), self._correlation)
        assert response.error == 0
        found = [log for directory in response.directories for log in directory.logs if log.topic == self.topic]
        listed = {log.partition: Logged(log.size_bytes, log.offset_lag, log.is_future) for log in found}
        assert len(listed) == len(found), "no log is on two directories"
        return Logs(sorted({directory.error for directory in response.directories}), listed)

    def rise(self) -> int:
        """Raises the controller epoch; returns the one before."""
        self.controller_epoch += 1
        return self.controller_epoch - 1

    # -- encoding

    def _topic(self, topic_id: bytes | None) -> Topic:
        return Topic(0, self.topic, self.topic_id if topic_id == OWN_ID else topic_id, (), 0, 1)

    def _row(self, partition: int, leader: int, epoch: int, replicas: tuple[int, ...], version: int) -> PartitionRow:
        state = PartitionState.ONLINE
        assignment = Assignment(replicas)
        return PartitionRow(0, partition, assignment, state, leader, epoch, replicas, self.controller_epoch, version)

    async def _send(
        self,
        api: Api,
        body: bytes,
        *,
        live: bytes = b"",
        ibp: Ibp | None = None,
        controller: int = CONTROLLER,
        controller_epoch: int | None = None,
        broker_epoch: int | None = None,
        kraft: bool = False,
    ) -> Response:
        version = ibp or self.ibp
        epoch = self.controller_epoch if controller_epoch is None else controller_epoch
        requests = Requests(version, controller, epoch)
        self._correlation += 1
        head_of = self._correlation, self.subject.epoch if broker_epoch is None else broker_epoch
        if api is Api.LEADER_AND_ISR:
            parts = requests.leader_and_isr(*head_of, body)
        elif api is Api.UPDATE_METADATA:
            parts = requests.update_metadata(*head_of, body, live)
        else:
            parts = requests.stop_replica(*head_of, body)
        frame = b"".join(parts)[4:]
        if kraft:
            frame = _as_kraft(frame, controller)
        response = await self.subject.exchange(frame)
        return _read(api, requests.versions[api], response, self._correlation)


def _as_kraft(frame: bytes, controller: int) -> bytes:
    """Sets ``isKRaftController`` in a request."""
    at = frame.index(controller.to_bytes(4, "big") + b"\0") + 4
    return frame[:at] + b"\1" + frame[at + 1 :]


def _read(api: Api, version: int, frame: bytes, correlation: int) -> Response:
    entity = kio_messages.decode_response(api, version, frame, correlation)
    if api is Api.UPDATE_METADATA:
        return Response(int(entity.error_code), {})
    if api is Api.LEADER_AND_ISR and version >= 5:
        listed = [error for topic in entity.topics for error in topic.partition_errors]
    else:
        listed = list(entity.partition_errors)
    return Response(int(entity.error_code), {error.partition_index: int(error.error_code) for error in listed})
