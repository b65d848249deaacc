"""Shows the status of the domain, in every mode, and its health."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI, Response
from pydantic import Field

from configs.settings import Settings
from configs.version import product_version
from controller.http.documents import document
from controller.http.models import Document, Health, Item
from controller.process.wording import name_of
from controller.regions.domain import RegionsDomain, RegionsMode, shown
from controller.regions.operator.counts import by_state, servers_of, stranded, waiting
from controller.regions.operator.warnings import warnings
from controller.regions.term import RegionsTerm
from state_machines.regions.states import RegionState

WELL: Final = frozenset({RegionsMode.ACTIVE, RegionsMode.STANDBY})
"""Modes of a daemon that does its work, or stands by for it."""
UNBOUND: Final = frozenset({RegionsMode.STARTING, RegionsMode.STOPPED})
"""Modes in which the listener has no port."""


class RegionsStatus(Item):
    """The regions' domain of a daemon. Numbers are absent where it has no model, as on a standby."""

    mode: str
    why: str
    version: str
    daemon: str = Field("", description="name of this daemon: its controller.id, or its host and pid without Kafka")
    epoch: int | None = None
    listener: str = Field("", description="address for servers and clients")
    connections: int = 0
    store: str = ""
    file: str = ""
    lease_ms: int = 0
    fence: str = ""
    places: bool | None = Field(None, description="whether enough servers have come, so that regions are placed")
    namespaces: int | None = None
    tables: int | None = None
    regions: int | None = None
    open_regions: int | None = Field(None, description="at servers that may serve")
    waiting_regions: int | None = Field(None, description="WAITING: open at a process that crashed, and served by none")
    failed_regions: int | None = Field(None, description="FAILED_OPEN: an operator has them assigned again")
    stranded_regions: int | None = Field(
        None, description="of enabled tables, not open, and moved by no procedure: an operator has them assigned"
    )
    damaged_rows: int | None = Field(
        None, description="stored rows that cannot be used: they are left out, and stay as they are"
    )
    gaps: int | None = Field(None, description="ranges of keys that no region has, or several: no route is given there")
    in_transition: int | None = None
    overdue: int | None = Field(None, description="of them, longer than regions.transit_warning_ms")
    oldest_transition_s: float | None = None
    servers: int | None = Field(None, description="online ones")
    crashed_servers: int | None = Field(None, description="those whose crash is being dealt with")
    procedures: int | None = Field(None, description="those that have not ended")
    warnings: list[str] = []


class StatusView:
    """Shows the status of a daemon's domain."""

    def __init__(self, domain: RegionsDomain, settings: Settings) -> None:
        self._domain = domain
        self._settings = settings

    def health(self) -> Health:
        """Reports whether the domain is active, or stands by."""
        mode, why = shown(self._domain)
        return Health(ok=mode in WELL, mode=mode.value, why=why)

    def status(self) -> RegionsStatus:
        """Returns the status, in every mode."""
        domain, wanted = self._domain, self._settings.regions
        mode, why = shown(domain)
        found = RegionsStatus(
            mode=mode.value,
            why=why,
            version=product_version(),
            daemon=name_of(self._settings),
            listener=f"{self._settings.regions_host}:{domain.listener.port}" if domain.mode not in UNBOUND else "",
            connections=domain.listener.connections,
            store=wanted.store,
            file=str(self._settings.regions_file),
            lease_ms=wanted.lease_ms,
            fence=wanted.fence,
        )
        return found if domain.term is None else found.model_copy(update=self._numbers(domain.term))

    def _numbers(self, term: RegionsTerm) -> dict[str, object]:
        env, model = term.env, term.env.model
        states, servers = by_state(model), servers_of(model)
        transit = term.ages.present()
        failed, left = states[RegionState.FAILED_OPEN], stranded(model).total()
        return {
            "epoch": term.manager.epoch,
            "places": env.places,
            "namespaces": len(model.namespaces),
            "tables": len(model.tables),
            "regions": len(model.regions),
            "open_regions": states[RegionState.OPEN],
            "waiting_regions": waiting(model),
            "failed_regions": failed,
            "stranded_regions": left,
            "damaged_rows": sum(model.damages.count.values()),
            "gaps": len(model.damages.gaps),
            "in_transition": transit.regions,
            "overdue": transit.overdue,
            "oldest_transition_s": transit.oldest_ms / 1000,
            "servers": servers["online"] + servers["leaving"],
            "crashed_servers": servers["crashed"] + servers["fenced"],
            "procedures": sum(1 for _ in term.engine.live()),
            "warnings": list(warnings(term, self._domain.older, transit.overdue, failed, left)),
        }


def add_status_route(app: FastAPI, view: StatusView) -> None:
    """Adds the route to the surface of a daemon."""

    @app.get("/v1/regions", response_model=Document[RegionsStatus])
    async def status() -> Response:
        return document("RegionsStatus", [view.status()])
