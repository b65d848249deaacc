"""Makes one HTTP surface of the domains. Every user may read; only the daemon's user and root may change."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Final

from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry

from controller.domain import Surface
from controller.http.documents import add_errors, no_path, respond
from controller.http.models import Health
from controller.http.peers import ChangeGuard
from controller.metrics import exposition

OF_REGIONS: Final = "/v1/regions"
"""Begin of the paths about regions."""


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
