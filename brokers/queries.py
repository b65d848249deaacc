"""How live brokers are asked by preflight, take-over, hand-back and verify. Tests have a double.

These are an operator's questions. Of the answers the controller goes by settings of brokers alone
(:mod:`controller.engine.adoption`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache, partial
from typing import Final, Protocol, TypeVar

from brokers.client import QUESTIONS, BrokerCallFailed, BrokerClient, ClusterMetadata
from brokers.security.access import access_of
from brokers.security.users import SecurityUnusable
from brokers.wire import cold
from configs.settings import Settings
from state_machines.admin_rules.inherited_configs import Setting
from state_machines.model.types import Broker, Endpoint

T = TypeVar("T")

QUERIES_AT_ONCE_MAX: Final = 16
"""Brokers that are asked at the same time."""

ANSWER_S_MAX: Final = 10.0
"""Longest wait for an answer, where ``brokers.request_timeout_ms`` is longer."""


class BrokerQueries(Protocol):
    """One broker that listens to questions; every method raises :class:`BrokerCallFailed`."""

    @property
    def api_versions(self) -> Mapping[int, tuple[int, int]]:
        """API key -> lowest and highest version that it accepts."""

    async def metadata(self, topics: Iterable[str] | None = None) -> ClusterMetadata:
        """What it knows of topics (None: of all)."""

    async def broker_configs(self, broker_id: int, names: Iterable[str] | None = None) -> dict[str, str | None]:
        """Its settings; an error where it is not broker ``broker_id``."""

    async def broker_settings(self, broker_id: int, names: Iterable[str] | None = None) -> dict[str, Setting]:
        """The same with their sources."""

    async def static_configs(self, broker_id: int, names: Iterable[str] | None = None) -> dict[str, str | None]:
        """The same without what was set dynamically, which may change at any time."""

    async def log_dirs(self) -> dict[str, int]:
        """Error code of each log directory; 0 is online."""


Dial = Callable[[Broker], AbstractAsyncContextManager[BrokerQueries]]
"""Opens a connection to a broker for the questions of a block; raises :class:`BrokerCallFailed`."""


def dial_for(settings: Settings) -> Dial:
    """Asks on the listener on which the controller would speak to the broker."""
    access = cache(partial(access_of, settings.security))
    timeout_s = min(settings.brokers.request_timeout_ms / 1000, ANSWER_S_MAX)
    ready = asyncio.Event()

    @asynccontextmanager
    async def dial(broker: Broker) -> AsyncIterator[BrokerQueries]:
        if not ready.is_set():  # the loop must not wait for imports, least of all for those of another thread
            await asyncio.to_thread(cold.prepare, QUESTIONS)
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
    """Where the controller speaks to a broker: the control-plane listener where there is one."""
    names = (settings.brokers.control_plane_listener, settings.brokers.inter_broker_listener)
    return next((found for name in names if name and (found := broker.endpoint(name)) is not None), None)


async def query_each(
    dial: Dial,
    brokers: Mapping[int, Broker],
    query: Callable[[BrokerQueries, Broker], Awaitable[T]],
    within_s: float | None = None,
) -> dict[int, T | BrokerCallFailed]:
    """One question to every broker, some at a time; who does not answer (in time) has the reason as its answer."""
    limit = asyncio.Semaphore(QUERIES_AT_ONCE_MAX)

    async def one(broker: Broker) -> T | BrokerCallFailed:
        async with limit:
            try:
                async with asyncio.timeout(within_s), dial(broker) as queries:
                    return await query(queries, broker)
            except BrokerCallFailed as failed:
                return failed
            except TimeoutError:
                return BrokerCallFailed(f"no answer within {within_s:.1f} s")

    answers = await asyncio.gather(*(one(broker) for broker in brokers.values()))
    return dict(zip(brokers, answers, strict=True))
