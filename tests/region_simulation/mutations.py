"""Collects bugs planted in the product, one at a time: the simulation must catch every one of them."""

from __future__ import annotations

from tests.region_simulation import (
    mutations_claims,
    mutations_crash,
    mutations_exits,
    mutations_marks,
    mutations_moving,
    mutations_servers,
)
from tests.region_simulation.planting import AUDITED, MUTATIONS

__all__ = [
    "AUDITED",
    "MUTATIONS",
    "mutations_claims",
    "mutations_crash",
    "mutations_exits",
    "mutations_marks",
    "mutations_moving",
    "mutations_servers",
]
