"""Joins what operators see and change of the regions' domain, and what its metrics show."""

from __future__ import annotations

from fastapi import FastAPI

from configs.settings import Settings
from controller.http.models import Health
from controller.regions.domain import RegionsDomain, shown
from controller.regions.http.routes import add_region_routes
from controller.regions.metrics import RegionGauges, RegionsCollector
from controller.regions.operator.changes import Changes
from controller.regions.operator.gauges import gauges_of
from controller.regions.operator.marks import Marks
from controller.regions.operator.procedures import Procedures
from controller.regions.operator.reading import Reading


class View:
    """Implements :class:`controller.regions.http.ports.RegionsView`, the probes and the metrics' view."""

    name = "regions"

    def __init__(self, domain: RegionsDomain, settings: Settings) -> None:
        self._domain = domain
        self.reading = Reading(domain, settings)
        self.procedures = Procedures(domain)
        self.changes = Changes(domain)
        self.marks = Marks(domain)

    def liveness(self) -> Health:
        """Reports that the loop turns."""
        return Health(ok=True, mode=self._domain.mode.value, why="the loop turns")

    def readiness(self) -> Health:
        """Reports whether the domain is active, or stands by."""
        return self.reading.health()

    def status_line(self) -> str:
        """Returns mode and reason for systemd."""
        mode, why = shown(self._domain)
        return f"regions {mode}: {why}"

    def add_routes(self, app: FastAPI) -> None:
        """Adds the routes about regions."""
        add_region_routes(app, self)

    def collector(self) -> RegionsCollector:
        """Returns the metrics of the domain."""
        return RegionsCollector(self._domain.counters, self.region_gauges)

    async def keep(self) -> None:
        """Keeps nothing: all that operators see is in the domain's memory."""

    def region_gauges(self) -> RegionGauges:
        """Returns the present values."""
        return gauges_of(self._domain)
