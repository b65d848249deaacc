"""Keeps the link to one broker: one connection, one request in flight, retried with backoff until a response."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from brokers.outbound.delivery import Delivered, Shared
from brokers.transport import PROTOCOL_NAMES, Connection
from brokers.wire.frames import reason
from brokers.wire.primitives import BadMessage
from brokers.wire.requests import Errors, parse_response
from brokers.wire.versions import Api
from state_machines.model.types import Broker, Endpoint

log = logging.getLogger("regent.brokers")

GATE_POLL_S: Final = 0.05
COMPLAIN_AFTER_S: Final = 1.0
"""Brokers register up to half a second before they accept connections: shorter failures are not logged."""
CORRELATION_MAX: Final = 0x7FFFFFFF


class Unreachable(OSError):
    """Raised where a broker has no usable address."""


class Link:
    """Sends requests to ``broker``, which may be replaced when its endpoints change.

    It calls ``on_lost`` when its connection ends.
    """

    def __init__(self, broker: Broker, shared: Shared, on_lost: Callable[[], None]) -> None:
        self.broker = broker
        self.last_error: str | None = None
        self._shared = shared
        self._on_lost = on_lost
        self._connection: Connection | None = None
        self._correlation = 0
        self._retry_at_s = 0.0
        self._backoff_s = shared.settings.retry_backoff_ms / 1000
        self._began_s = shared.now_s()
        self._failing_since_s: float | None = None
        self._complained = False

    def __str__(self) -> str:
        return f"broker {self.broker.id} (epoch {self.broker.epoch})"

    @property
    def connected(self) -> bool:
        """Returns whether there is a connection."""
        return self._connection is not None and not self._connection.closed

    @property
    def lost(self) -> bool:
        """Returns whether there was a connection and it ended."""
        return self._connection is not None and self._connection.closed

    async def deliver(self, api: Api, partitions: int, request: Callable[[int, int], list[bytes]]) -> Errors:
        """Sends a request until there is a response; calls ``request`` for each attempt."""
        try:
            errors = await self._deliver(api, request)
        except BaseException:
            self._ended(api, partitions, acknowledged=False, why=self.last_error or "")
            raise
        self._ended(api, partitions, error=errors.top)
        self._succeeded()
        return errors

    def _ended(self, api: Api, partitions: int, *, acknowledged: bool = True, error: int = 0, why: str = "") -> None:
        seconds = self._shared.now_s() - self._began_s
        known = self.broker.id, self.broker.epoch, api, partitions, seconds
        self._shared.on_request(Delivered(*known, acknowledged, error, why))

    async def _deliver(self, api: Api, request: Callable[[int, int], list[bytes]]) -> Errors:
        self._correlation = (self._correlation + 1) & CORRELATION_MAX
        version = self._shared.requests.versions[api]
        self._began_s = self._shared.now_s()
        while True:
            connection = await self.connection()
            parts = request(self._correlation, self.broker.epoch)
            try:
                async with asyncio.timeout(self._shared.settings.request_timeout_ms / 1000):
                    response = await connection.exchange(parts)
                errors = parse_response(api, version, response, self._correlation)
            except OSError as error:
                self._failed(f"{api.name}: {reason(error)}")
            except BadMessage as error:
                self._failed(f"{api.name}: {error}")
            else:
                return errors

    async def reopen(self) -> None:
        """Reconnects before the next request needs the connection."""
        self._began_s = self._shared.now_s()
        await self.connection()
        self._succeeded()

    async def connection(self) -> Connection:
        """Returns a connection for writing now; waits while the gate is closed, and until the broker accepts."""
        while True:
            if not self._shared.gate():
                await asyncio.sleep(GATE_POLL_S)
            elif self._connection is not None and not self._connection.closed:
                return self._connection
            elif (pause_s := self._retry_at_s - self._shared.now_s()) > 0:
                await asyncio.sleep(pause_s)
            else:
                await self._connect()

    async def _connect(self) -> None:
        self._retry_at_s = self._shared.now_s() + self._backoff_s
        try:
            endpoint = self._endpoint()
        except Unreachable as error:
            self._failed(str(error))
            return
        try:
            async with asyncio.timeout(self._shared.settings.connect_timeout_ms / 1000):
                self._connection = await self._shared.transport.connect(endpoint.host, endpoint.port, self._on_lost)
        except OSError as error:
            self._failed(f"{endpoint.host}:{endpoint.port}: {reason(error)}")

    def _endpoint(self) -> Endpoint:
        listeners = self._shared.settings.listeners
        endpoint = next((e for name in listeners if (e := self.broker.endpoint(name)) is not None), None)
        if endpoint is None:
            raise Unreachable(f"it registered no listener named {' or '.join(listeners)}")
        wanted = self._shared.settings.security_protocol
        if endpoint.security_protocol != wanted:
            theirs, ours = (PROTOCOL_NAMES.get(number, str(number)) for number in (endpoint.security_protocol, wanted))
            raise Unreachable(f"its listener {endpoint.listener} is {theirs}, security.protocol is {ours}")
        return endpoint

    def _failed(self, why: str) -> None:
        settings, now_s = self._shared.settings, self._shared.now_s()
        self.close()
        self.last_error = why
        self._retry_at_s = now_s + self._backoff_s
        self._backoff_s = min(2 * self._backoff_s, settings.retry_backoff_ms_max / 1000)
        if self._failing_since_s is None:
            self._failing_since_s = self._began_s
        if not self._complained and now_s - self._failing_since_s >= COMPLAIN_AFTER_S:
            self._complained = True
            log.warning(
                "%s does not acknowledge requests: %s; they are retried until it does, or until it is deregistered",
                self,
                why,
            )

    def _succeeded(self) -> None:
        self.last_error = None
        self._backoff_s = self._shared.settings.retry_backoff_ms / 1000
        if self._failing_since_s is not None and self._complained:
            failing_s = self._shared.now_s() - self._failing_since_s
            log.info("%s acknowledges requests again after %.1f s", self, failing_s)
        self._failing_since_s, self._complained = None, False

    def close(self) -> None:
        """Ends the connection at once."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
