"""Holds the state that all channels of one term share: settings, encoded bodies, the gate, and callbacks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from brokers.outbound.batches import Batcher
from brokers.outbound.snapshot import TURN_ROWS, Snapshots
from brokers.transport import Transport
from brokers.wire.requests import Requests, live_list
from brokers.wire.versions import Api, Ibp
from state_machines.model.types import Broker, Endpoint, TopicPartition
from state_machines.propagation.propagation import Propagation

NO_BROKER_EPOCH: Final = -1
UNHURRIED_S_MAX: Final = 2.0
"""Longest delay of a decision that is not urgent while more of it is coming."""


class ChannelSettings(Struct, frozen=True):
    """The controller's identity, the brokers' listeners, and the timing of requests.

    ``listeners``: names in order of preference (the control-plane listener where there is one, then the inter-broker
    listener). ``own_endpoints``: the controller's addresses in the live list, by listener name; empty = the controller
    is not listed. ``security_protocol``: the number of these listeners' protocol. ``rack``: the controller's rack, used
    as soon as a broker has one; None = the most common one. ``bulk_batch_interval_ms`` replaces ``seal_interval_ms``
    while more of one urgent decision is coming.
    """

    controller_id: int
    controller_epoch: int
    ibp: Ibp
    listeners: tuple[str, ...]
    own_endpoints: tuple[Endpoint, ...] = ()
    security_protocol: int = 0
    rack: str | None = None
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_ms_max: int = 1_000
    seal_interval_ms: int = 20
    bulk_batch_interval_ms: int = 100
    snapshot_turn_partitions: int = TURN_ROWS


class BrokerResponse(Struct, frozen=True):
    """A broker's response to LeaderAndIsr or StopReplica, or to a refused UpdateMetadata.

    ``error`` is the top-level error. ``failed`` holds (row, error) of partitions; for a large response to LeaderAndIsr
    only if one of them has KAFKA_STORAGE_ERROR or INCONSISTENT_TOPIC_ID. STALE_CONTROLLER_EPOCH is never in it: it
    means a known leader epoch.
    ``rows`` are the request's rows; a mapping marks those that are new (LeaderAndIsr) or deleted (StopReplica).
    """

    broker_id: int
    broker_epoch: int
    api: Api
    error: int
    failed: tuple[tuple[int, int], ...]
    rows: Mapping[int, bool] | range


class LogsStopped(Struct, frozen=True):
    """A broker's response to StopReplica by name, by which it deletes logs.

    ``acknowledged``: partitions whose logs it deleted, or did not have. ``refused``: its errors. ``spared``: partitions
    that the last attempt did not name, because an assignment had come to name the broker. Where the request was refused
    as a whole by ``error``, each partition is refused by it.
    """

    broker_id: int
    broker_epoch: int
    error: int
    acknowledged: tuple[TopicPartition, ...]
    refused: Mapping[TopicPartition, int]
    spared: tuple[TopicPartition, ...]


class ChannelFailed(Struct, frozen=True):
    """The end of a channel by an error in the program. No request reaches that broker any more: the term must end."""

    broker_id: int
    reason: str


OnEvent = Callable[[BrokerResponse | LogsStopped | ChannelFailed], None]
"""Called on the event loop; must only enqueue."""

JudgeLogs = Callable[[int, Sequence[TopicPartition]], Mapping[TopicPartition, int]]
"""Called with a broker's id at each attempt: the partitions whose logs may be deleted there now, by leader epoch."""


class Delivered(Struct, frozen=True):
    """A request that has its response, or was given up with its broker's incarnation or the term.

    ``partitions``: at most so many are named; 0 of the live list alone. ``seconds``: since the first attempt.
    ``acknowledged`` is False where it was given up; ``error``: of the response as a whole, 0 without; ``why``: the
    failure of the last attempt that was given up.
    """

    broker_id: int
    broker_epoch: int
    api: Api
    partitions: int
    seconds: float
    acknowledged: bool = True
    error: int = 0
    why: str = ""


OnRequest = Callable[[Delivered], None]
"""Called on the event loop with each request that has ended; must not wait or raise."""

OnAcknowledged = Callable[[float], None]
"""Called on the event loop with the age of the oldest change that a broker has just acknowledged."""


def spare_logs(_broker: int, _names: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
    """Spares all logs: no judge was given."""
    return {}


class Shared:
    """The state that the channels of one term share."""

    def __init__(
        self,
        propagation: Propagation,
        settings: ChannelSettings,
        transport: Transport,
        gate: Callable[[], bool],
        on_event: OnEvent,
        on_request: OnRequest = lambda _delivered: None,
        on_acknowledged: OnAcknowledged = lambda _seconds: None,
    ) -> None:
        self.on_request = on_request
        self.on_acknowledged = on_acknowledged
        self.propagation = propagation
        self.settings = settings
        self.own_endpoints = settings.own_endpoints
        self.transport = transport
        self.gate = gate
        self.on_event = on_event
        self.requests = Requests(settings.ibp, settings.controller_id, settings.controller_epoch)
        self.batcher = Batcher(propagation, settings.ibp)
        self.snapshots = Snapshots(propagation, settings.ibp, settings.snapshot_turn_partitions)
        self.progress = asyncio.Event()
        self.judge_logs: JudgeLogs = spare_logs
        self.more_coming = 0
        self.unhurried = 0
        self._live: tuple[int, bytes] = (0, b"")

    @staticmethod
    def now_s() -> float:
        """Returns the event loop's time."""
        return asyncio.get_running_loop().time()

    @property
    def batch_interval_s(self) -> float:
        """Returns the shortest time between two batches to one broker."""
        return UNHURRIED_S_MAX if self.unhurried else self.round_s

    @property
    def round_s(self) -> float:
        """Returns the same for changes that cannot wait, which an earlier decision has left to propagate."""
        settings = self.settings
        return (settings.bulk_batch_interval_ms if self.more_coming else settings.seal_interval_ms) / 1000

    def cut(self) -> int:
        """Returns the feed's end for a batch that starts now, the same for every broker's batch of a round."""
        return self.batcher.cut(self.now_s(), self.round_s)

    def progressed(self) -> None:
        """Releases the state that no channel needs after a batch or a turn was acknowledged."""
        self.propagation.prune()
        self.snapshots.clear_if_unused()
        self.progress.set()

    def live_list(self) -> tuple[int, bytes]:
        """Returns the live list with its version, encoded once per version."""
        version = self.propagation.live_version
        if self._live[0] != version:
            brokers = self.propagation.view.brokers
            listed = [brokers[b] for b in sorted(brokers)]
            self._live = version, live_list(self._own_entry(listed) + listed)
        return self._live

    def _own_entry(self, brokers: list[Broker]) -> list[Broker]:
        """Returns the controller's entry in the live list, by which brokers find it (KIP-497, controlled shutdown).

        A mix of brokers with and without rack breaks automatic topic creation on all of them. The most common rack
        draws the fewest replicas to an id that cannot host any.
        """
        settings = self.settings
        if not self.own_endpoints:
            return []
        racks = Counter(sorted(broker.rack for broker in brokers if broker.rack is not None))
        rack = (settings.rack or racks.most_common(1)[0][0]) if racks else None
        return [Broker(settings.controller_id, NO_BROKER_EPOCH, self.own_endpoints, rack)]
