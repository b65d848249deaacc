"""Keeps the loads of regions that servers tell."""

from __future__ import annotations

from collections.abc import Sequence

from regent_agent.protocol import RegionLoad
from state_machines.regions.model import Server


class Loads:
    """Takes the loads of regions."""

    def take(self, server: Server, loads: Sequence[RegionLoad]) -> None:
        """Takes the loads of some regions of a server."""
