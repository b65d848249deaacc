"""Declares what the process of a daemon runs: its domains, and what operators and metrics see of each.

The controller of a Kafka cluster is one domain, the regions of services are the other. Each claims its own store and
serves one term after the other. A daemon has one of them, or both. They share one HTTP surface: every user may read,
only the daemon's user and root may change.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Final, NamedTuple, Protocol

import anyio
from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from controller.http.documents import add_errors, no_path, respond
from controller.http.models import Health
from controller.http.peers import ChangeGuard
from controller.metrics import exposition

OF_REGIONS: Final = "/v1/regions"
"""Begin of the paths about regions."""


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


def create_app(surfaces: Sequence[Surface], metrics: CollectorRegistry, owner: int | None = None) -> FastAPI:
    """Creates the HTTP surface of a daemon that runs as the user ``owner`` (default: this process's)."""
    app = FastAPI(title="regent", docs_url=None, redoc_url=None)
    names = frozenset(surface.name for surface in surfaces)
    add_errors(app, lambda path: _unknown(path, names))
    _add_probes(app, surfaces[0], metrics)
    for surface in surfaces:
        surface.add_routes(app)
    app.add_middleware(ChangeGuard, owner=os.geteuid() if owner is None else owner)
    return app


def _unknown(path: str, names: Collection[str]) -> tuple[str, str]:
    """Returns message and remedy for a path that this daemon does not have."""
    if path.startswith(OF_REGIONS):
        if "regions" not in names:
            return "this daemon assigns no regions", "give its settings a section [regions], and restart it"
    elif "kafka" not in names:
        return "this daemon assigns regions, and has no Kafka cluster", "see 'regent regions status'"
    return no_path(path)


def _add_probes(app: FastAPI, probes: Surface, metrics: CollectorRegistry) -> None:
    """Adds the routes that work from the first moment on."""

    @app.get("/liveness", response_model=Health)
    async def liveness() -> Response:
        return _probe(probes.liveness())

    @app.get("/readiness", response_model=Health)
    async def readiness() -> Response:
        return _probe(probes.readiness())

    @app.get("/metrics")
    async def scrape(request: Request) -> Response:
        body, content_type = exposition(metrics, request.headers.get("accept", ""))
        return Response(body, media_type=content_type)


def _probe(health: Health) -> Response:
    return respond(health, 200 if health.ok else 503)
