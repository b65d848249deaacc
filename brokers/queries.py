"""Queries live brokers for preflight, take-over, hand-back and verification. Tests have a double.

These queries serve the operator. The controller's decisions use only the brokers' settings among the results
(:mod:`controller.kafka.path.adoption`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache, partial
from typing import Final, Protocol, TypeVar

from brokers.client import BrokerCallFailed, BrokerClient, ClusterMetadata, prepare_queries
from brokers.security.access import access_of
from brokers.security.authentication import SecurityUnusable
from brokers.wire.log_dirs import REPLICAS_MAX
from configs.settings import Settings
from state_machines.admin_rules.inherited_configs import Setting
from state_machines.model.types import Broker, Endpoint, LogDirectory

T = TypeVar("T")

QUERIES_AT_ONCE_MAX: Final = 16
"""Most brokers that are queried at the same time."""

RESPONSE_S_MAX: Final = 10.0
"""Longest wait for a response, where ``brokers.request_timeout_ms`` is longer."""


class BrokerQueries(Protocol):
    """The queries to one broker; every method raises :class:`BrokerCallFailed`."""

    @property
    def api_versions(self) -> Mapping[int, tuple[int, int]]:
        """Returns the lowest and highest accepted version of each API key."""

    async def metadata(self, topics: Iterable[str] | None = None) -> ClusterMetadata:
        """Returns the broker's metadata of ``topics`` (None: all)."""

    async def broker_configs(self, broker_id: int, names: Iterable[str] | None = None) -> dict[str, str | None]:
        """Returns the broker's settings; raises where it is not broker ``broker_id``."""

    async def broker_settings(self, broker_id: int, names: Iterable[str] | None = None) -> dict[str, Setting]:
        """Returns the settings with their sources."""

    async def static_configs(self, broker_id: int, names: Iterable[str] | None = None) -> dict[str, str | None]:
        """Returns the settings without dynamic ones, which may change at any time."""

    async def log_dirs(self) -> dict[str, int]:
        """Returns the error code of each log directory; 0 is online."""

    async def replica_logs(
        self, partitions: Mapping[str, Collection[int]] | None, replicas_max: int = REPLICAS_MAX
    ) -> tuple[LogDirectory, ...]:
        """Returns the log directories with the logs of ``partitions`` by topic; None: all that the broker has.

        Raises where the response lists more than ``replicas_max`` replicas.
        """

    async def offsets(
        self, partitions: Mapping[str, Collection[int]], *, earliest: bool = False
    ) -> dict[tuple[str, int], int | str]:
        """Returns end offsets (or first ones) of partitions that the broker leads; or the name of an error."""


Dial = Callable[[Broker], AbstractAsyncContextManager[BrokerQueries]]
"""Opens a connection to a broker for the queries of a block; raises :class:`BrokerCallFailed`."""


def dial_for(settings: Settings) -> Dial:
    """Returns a dial to the listener to which the controller sends its requests."""
    access = cache(partial(access_of, settings.security))
    timeout_s = min(settings.brokers.request_timeout_ms / 1000, RESPONSE_S_MAX)
    ready = asyncio.Event()

    @asynccontextmanager
    async def dial(broker: Broker) -> AsyncIterator[BrokerQueries]:
        if not ready.is_set():  # the loop must not wait for imports, least of all for those on another thread
            await asyncio.to_thread(prepare_queries)
            ready.set()
        endpoint = control_endpoint(settings, broker)
        if endpoint is None:
            raise BrokerCallFailed(
                f"broker {broker.id} registered no listener {settings.brokers.inter_broker_listener}"
            )
        try:
            transport = access().transport
        except SecurityUnusable as error:
            raise BrokerCallFailed(str(error)) from error
        async with await BrokerClient.connect(endpoint.host, endpoint.port, timeout_s, transport) as client:
            yield client

    return dial


def control_endpoint(settings: Settings, broker: Broker) -> Endpoint | None:
    """Returns the broker's listener for the controller's requests: the control-plane listener where there is one."""
    names = (settings.brokers.control_plane_listener, settings.brokers.inter_broker_listener)
    return next((found for name in names if name and (found := broker.endpoint(name)) is not None), None)


async def query_each(
    dial: Dial,
    brokers: Mapping[int, Broker],
    query: Callable[[BrokerQueries, Broker], Awaitable[T]],
    within_s: float | None = None,
) -> dict[int, T | BrokerCallFailed]:
    """Sends one query to every broker, some at a time; a broker that does not respond in time gets the error."""
    limit = asyncio.Semaphore(QUERIES_AT_ONCE_MAX)

    async def one(broker: Broker) -> T | BrokerCallFailed:
        async with limit:
            try:
                async with asyncio.timeout(within_s), dial(broker) as queries:
                    return await query(queries, broker)
            except BrokerCallFailed as failed:
                return failed
            except TimeoutError:
                return BrokerCallFailed(f"no response within {within_s:.1f} s")

    results = await asyncio.gather(*(one(broker) for broker in brokers.values()))
    return dict(zip(brokers, results, strict=True))
