"""Simulates a broker as a controller sees it: requests in, responses out, and the state that they leave behind.

It has no clock, no sockets and no randomness: equal requests leave equal state. The checks of a 3.9 broker, their
order, and the errors of each were compared with a real one (``tests/contracts/brokers.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from brokers.wire.errors import Error
from brokers.wire.versions import DEFAULT, Api, Ibp
from metadata_store import paths
from metadata_store.codecs.notifications import encode_log_dir_event
from metadata_store.port import Create
from state_machines.model.types import Broker, Endpoint
from testing.simulated.hosting import Hosting, Replica
from testing.simulated.isr import IsrWork
from testing.simulated.metadata import MetadataCache
from testing.simulated.queries import respond_to_log_dirs
from testing.simulated.replies import api_versions_response, bare_response, encode_response
from testing.simulated.requests import VERSIONS, read_request
from testing.simulated.values import (
    NO_BROKER_EPOCH,
    Head,
    Key,
    LeaderAndIsr,
    MetadataEntry,
    Request,
    StopReplica,
    UpdateMetadata,
)

LOG_DIR_EVENT: Final = f"{paths.LOG_DIR_EVENTS}/log_dir_event_"
_API_VERSIONS_KEY: Final = Api.API_VERSIONS.to_bytes(2, "big")
_LOG_DIRS_KEY: Final = Api.DESCRIBE_LOG_DIRS.to_bytes(2, "big")


class Received(Struct, frozen=True):
    """A request after it took effect: ``size`` in bytes, the top-level ``error`` and that of every partition."""

    broker: int
    request: Request
    size: int
    error: int
    errors: dict[Key, int]

    @property
    def api(self) -> Api:
        """Returns the kind of the request."""
        return self.request.head.api

    @property
    def partitions(self) -> int:
        """Counts the partitions that it names."""
        return len(self.request.entries)


class SimulatedBroker:
    """One broker through all its incarnations. ``epoch`` is its broker epoch, the czxid of its registration.

    ``recorded`` is called with every decoded request, refused ones included, after it took effect. ``isr`` is its work
    as a leader (:class:`testing.simulated.isr.IsrWork`).
    """

    def __init__(
        self, broker_id: int, epoch: int = 0, *, ibp: Ibp = DEFAULT, recorded: Callable[[Received], None] | None = None
    ) -> None:
        self.id = broker_id
        self.epoch = epoch
        self.ibp = ibp
        self.recorded = recorded
        self.controller_epoch = 0
        self.hosting = Hosting(broker_id)
        self.cache = MetadataCache()
        self.isr = IsrWork(self.hosting, self.cache, self.epoch, self.ibp)

    # -- its view

    @property
    def controller_id(self) -> int:
        """Returns the controller of the last UpdateMetadata; -1 before the first."""
        return self.cache.controller_id

    @property
    def live(self) -> dict[int, Broker]:
        """Returns the live list of the last UpdateMetadata, the controller's own entry included."""
        return self.cache.live

    @property
    def metadata(self) -> dict[Key, MetadataEntry]:
        """Returns the metadata that the broker would send to clients."""
        return self.cache.partitions

    @property
    def replicas(self) -> dict[Key, Replica]:
        """Returns the replicas that the broker hosts in this incarnation, offline ones left out."""
        return self.hosting.replicas

    def controller(self, listener: str) -> Endpoint | None:
        """Returns the endpoint at which the broker would look for the controller."""
        entry = self.live.get(self.controller_id)
        return entry.endpoint(listener) if entry is not None else None

    def fetches(self, key: Key, leader: int, leader_epoch: int) -> bool:
        """Checks whether the broker follows ``leader`` in that leader epoch, so that it can catch up."""
        replica = self.replicas.get(key)
        return (
            replica is not None
            and (replica.leader, replica.leader_epoch) == (leader, leader_epoch)
            and not replica.stopped
            and leader != self.id
        )

    def copy(self) -> SimulatedBroker:
        """Returns an equal broker that changes apart; it records nothing, and has no ISR change under way."""
        other = SimulatedBroker(self.id, self.epoch, ibp=self.ibp)
        other.controller_epoch = self.controller_epoch
        other.hosting, other.cache = self.hosting.copy(), self.cache.copy()
        other.isr = IsrWork(other.hosting, other.cache, other.epoch, other.ibp)
        return other

    # -- incarnations and faults

    def restart(self, epoch: int) -> None:
        """Begins a new incarnation: the broker forgets the metadata that it was sent and keeps its logs."""
        self.epoch = epoch
        self.controller_epoch = 0
        self.hosting.restart()
        self.cache = MetadataCache()
        self.isr = IsrWork(self.hosting, self.cache, self.epoch, self.ibp)

    def registered(self, epoch: int) -> None:
        """Sets the epoch, perhaps after requests of a controller that learned it first.

        The metadata that the broker was sent stays, and so do the ISR changes that it wants.
        """
        self.epoch = self.isr.epoch = epoch

    def fail_partition(self, topic: str, partition: int) -> Create:
        """Fails the log directory of a replica: error 56. Returns the znode by which it notifies the controller.

        While a directory is failed no replica is created but new ones (``isNew``), as no log can be missed then.
        """
        self.hosting.fail((topic, partition))
        return Create(LOG_DIR_EVENT, encode_log_dir_event(self.id), sequential=True)

    def recover(self) -> None:
        """Repairs the log directories. The broker notices at its next :meth:`restart`."""
        self.hosting.recover()

    def adopt(self, cache: MetadataCache) -> None:
        """Adopts the content of ``cache``; brokers that are not sent anything more may share one."""
        self.cache = cache
        self.isr = IsrWork(self.hosting, cache, self.epoch, self.ibp)

    # -- requests

    def receive(self, frame: bytes) -> bytes:
        """Returns the response to a request, both without their 4-byte lengths; raises :class:`Malformed`."""
        if frame[:2] == _API_VERSIONS_KEY and len(frame) >= 8:
            return api_versions_response(int.from_bytes(frame[4:8], "big"), VERSIONS)
        if frame[:2] == _LOG_DIRS_KEY:
            return respond_to_log_dirs(frame, self.hosting)
        return self.take(read_request(frame), len(frame))

    def take(self, request: Request, size: int = 0) -> bytes:
        """Returns the response to a decoded request."""
        error, errors = self.apply(request)
        if self.recorded is not None:
            self.recorded(Received(self.id, request, size, error, errors))
        if error and isinstance(request, StopReplica) and error != Error.UNKNOWN_SERVER_ERROR:
            return bare_response(request.head, error)
        return encode_response(request, error, errors)

    def apply(self, request: Request) -> tuple[int, dict[Key, int]]:
        """Takes a request; returns the top-level error and that of each partition (of every one it was sent)."""
        error = refused(request.head, self.epoch, self.controller_epoch)
        if error:
            return error, {(entry.topic, entry.partition): error for entry in request.entries}
        self.controller_epoch = request.head.controller_epoch
        match request:
            case UpdateMetadata():
                self.cache.update(request)
                return Error.NONE, {}
            case LeaderAndIsr():
                return Error.NONE, self.hosting.lead(request, self.live)
            case StopReplica():
                return Error.NONE, self.hosting.stop(request)


def refused(head: Head, epoch: int, controller_epoch: int) -> int:
    """Returns why a whole request is refused, or 0. Equal controller epochs are accepted from any sender."""
    if head.broker_epoch != NO_BROKER_EPOCH:
        if head.kraft:
            return Error.UNKNOWN_SERVER_ERROR
        if head.broker_epoch < epoch:
            return Error.STALE_BROKER_EPOCH
    return Error.STALE_CONTROLLER_EPOCH if head.controller_epoch < controller_epoch else Error.NONE
