"""Declares what the process of a daemon runs: its domains, and what operators and metrics see of each.

The controller of a Kafka cluster is one domain, the regions of services are the other. Each claims its own store and
serves one term after the other. A daemon has one of them, or both.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import NamedTuple, Protocol

import anyio
from fastapi import FastAPI
from prometheus_client.registry import Collector

from controller.http.models import Health


class Domain(Protocol):
    """The life of a domain. ``over`` is set once the process may end: after a stop, or by the domain itself."""

    over: asyncio.Event

    @property
    def exit_code(self) -> int:
        """Returns the exit code of a process that this domain has ended."""

    async def begin(self) -> None:
        """Starts the journal."""

    async def run(self) -> None:
        """Claims and serves, term after term, until cancelled or over; raises errors that end the process."""

    def end(self) -> None:
        """Closes the journal, after the run."""

    def stop(self) -> None:
        """Begins a clean stop; a second stop waits for nothing."""

    async def moves(self, within_s: float) -> bool:
        """Returns whether events pass the domain's queue, or have to wait; the watchdog waits ``within_s`` for it."""


class Surface(Protocol):
    """The part of a domain in the HTTP surface."""

    @property
    def name(self) -> str:
        """Returns the name of the domain."""

    def liveness(self) -> Health:
        """Reports that the loop turns."""

    def readiness(self) -> Health:
        """Reports whether the domain does its work, or stands by for it."""

    def add_routes(self, app: FastAPI) -> None:
        """Adds the routes of the domain."""


class DomainView(Surface, Protocol):
    """What operators and metrics see of a domain."""

    def status_line(self) -> str:
        """Returns mode and reason, as systemd shows them."""

    def collector(self) -> Collector:
        """Returns the metrics of the domain."""

    async def keep(self) -> None:
        """Reads at intervals what the domain itself does not need, until cancelled."""


class Part(NamedTuple):
    """A domain of this daemon, with its view."""

    domain: Domain
    view: DomainView


@asynccontextmanager
async def running(*domains: Domain) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Runs domains inside the block; yields their tasks, each with the error of a domain that ends by itself.

    At the end they stop in their order, then close what they have opened, also where the process is cancelled.
    """
    with ExitStack() as begun:
        for domain in domains:
            await domain.begin()
            begun.callback(domain.end)
        tasks = [asyncio.create_task(domain.run(), name=type(domain).__name__) for domain in domains]
        try:
            yield tasks
        finally:
            with anyio.CancelScope(shield=True):
                for task in tasks:
                    task.cancel()
                    await asyncio.wait({task})
