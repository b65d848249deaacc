"""Declares the values of the metrics of the regions' domain, at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class RegionGauges:
    """The state at one moment; numbers are zero on a daemon that is not active."""

    active: bool = False
    suspended: bool = False
    """Whether the lease on the store ran out, and the term waits."""
    epoch: int = 0
    places: bool = False
    connections: int = 0
    tables: int = 0
    regions: Mapping[str, int] = field(default_factory=dict)
    """Those in each state."""
    in_transition: int = 0
    overdue: int = 0
    stranded: int = 0
    """Those of enabled tables that are not open, and that no procedure moves."""
    tables_halted: int = 0
    damaged_rows: int = 0
    """Stored rows that cannot be used."""
    gaps: int = 0
    """Ranges of keys that no region has, or several."""
    oldest_transition_s: float = 0.0
    unplaced: int = 0
    servers: Mapping[str, int] = field(default_factory=dict)
    """Processes in each state."""
    procedures: int = 0
    procedures_unusable: int = 0
    procedures_parked: int = 0


class RegionMetricsView(Protocol):
    """The domain's side of a scrape. It runs on the event loop, and never waits."""

    def region_gauges(self) -> RegionGauges:
        """Returns the present values."""
