"""Joins what operators see and change of the regions' domain, and what its metrics show."""

from __future__ import annotations

from configs.settings import Settings
from controller.http.models import Health
from controller.regions.domain import RegionsDomain
from controller.regions.metrics.gauges import RegionGauges
from controller.regions.operator.changes import Changes
from controller.regions.operator.gauges import gauges_of
from controller.regions.operator.marks import Marks
from controller.regions.operator.procedures import Procedures
from controller.regions.operator.reading import Reading


class View:
    """Implements :class:`controller.regions.http.ports.RegionsView`, the probes and the metrics' view."""

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

    def region_gauges(self) -> RegionGauges:
        """Returns the present values."""
        return gauges_of(self._domain)
