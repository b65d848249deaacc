"""What all channels of one term share: settings, encoded bodies, the gate, and where answers go."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from brokers.outbound.batches import Batcher
from brokers.outbound.snapshot import TURN_ROWS, Snapshots
from brokers.transport import Transport
from brokers.wire.requests import Requests, live_list
from brokers.wire.versions import Api, Ibp
from state_machines.model.types import Broker, Endpoint
from state_machines.propagation.propagation import Propagation

NO_BROKER_EPOCH: Final = -1
UNHURRIED_S_MAX: Final = 2.0
"""How long a decision that is not urgent is kept back while more of it is coming."""


class ChannelSettings(Struct, frozen=True):
    """Who sends, to which listener, how often.

    ``listeners``: names in order of preference (the control-plane listener where there is one, then the inter-broker
    listener). ``own_endpoints``: what brokers are told as the controller's address, by listener name; empty = the
    controller is not listed. ``security_protocol``: number of the protocol that those listeners speak. ``rack``: its
    rack, used as soon as a broker has one; None = the most common one.
    ``bulk_batch_interval_ms`` instead of ``seal_interval_ms`` while more of one decision is coming that cannot wait.
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
    """A broker's answer to LeaderAndIsr or StopReplica, or to UpdateMetadata if that was refused.

    ``error``: the top-level error. ``failed``: (row, error) of partitions; where an answer to LeaderAndIsr was large,
    only if one of them has KAFKA_STORAGE_ERROR; never STALE_CONTROLLER_EPOCH: a leader epoch that was known already.
    ``rows``: the rows of the request; a mapping tells which of them are new (LeaderAndIsr) or deleted (StopReplica).
    """

    broker_id: int
    broker_epoch: int
    api: Api
    error: int
    failed: tuple[tuple[int, int], ...]
    rows: Mapping[int, bool] | range


class ChannelFailed(Struct, frozen=True):
    """A channel ended by an error in the program; nothing reaches that broker any more: resign."""

    broker_id: int
    reason: str


OnEvent = Callable[[BrokerResponse | ChannelFailed], None]
"""Called on the event loop; must only enqueue."""


OnRequest = Callable[[int, float], None]
"""Called on the event loop with a broker's id and the seconds from a request's first try to its answer."""

OnAcknowledged = Callable[[float], None]
"""Called on the event loop with the age of the oldest change of those that a broker has just acknowledged."""


class Shared:
    """Everything that the channels of one term have in common."""

    def __init__(
        self,
        propagation: Propagation,
        settings: ChannelSettings,
        transport: Transport,
        gate: Callable[[], bool],
        on_event: OnEvent,
        on_request: OnRequest = lambda _broker, _seconds: None,
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
        self.more_coming = 0
        self.unhurried = 0
        self._live: tuple[int, bytes] = (0, b"")

    @staticmethod
    def now_s() -> float:
        """The event loop's clock."""
        return asyncio.get_running_loop().time()

    @property
    def batch_interval_s(self) -> float:
        """Shortest time between two seals to one broker."""
        return UNHURRIED_S_MAX if self.unhurried else self.round_s

    @property
    def round_s(self) -> float:
        """The same for what cannot wait: changes that somebody else's decision left to be told."""
        settings = self.settings
        return (settings.bulk_batch_interval_ms if self.more_coming else settings.seal_interval_ms) / 1000

    def cut(self) -> int:
        """Up to where the feed may be read in a seal that starts now: the same for every broker's seal of a round."""
        return self.batcher.cut(self.now_s(), self.round_s)

    def progressed(self) -> None:
        """A seal or a turn was acknowledged."""
        self.propagation.prune()
        self.snapshots.clear_if_unused()
        self.progress.set()

    def live_list(self) -> tuple[int, bytes]:
        """The live list with its version, encoded once per version."""
        version = self.propagation.live_version
        if self._live[0] != version:
            brokers = self.propagation.view.brokers
            listed = [brokers[b] for b in sorted(brokers)]
            self._live = version, live_list(self._own_entry(listed) + listed)
        return self._live

    def _own_entry(self, brokers: list[Broker]) -> list[Broker]:
        """The controller among the live brokers, so that they find it (KIP-497, controlled shutdown).

        A mix of brokers with and without rack breaks automatic topic creation on all of them; sharing the most
        common rack draws the fewest replicas to an id that cannot host any.
        """
        settings = self.settings
        if not self.own_endpoints:
            return []
        racks = Counter(sorted(broker.rack for broker in brokers if broker.rack is not None))
        rack = (settings.rack or racks.most_common(1)[0][0]) if racks else None
        return [Broker(settings.controller_id, NO_BROKER_EPOCH, self.own_endpoints, rack)]
