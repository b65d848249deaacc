"""Collects bugs planted in the product, one at a time: the simulation must catch every one of them."""

from __future__ import annotations

from tests.simulation.regions import (
    mutations_balance,
    mutations_claims,
    mutations_crash,
    mutations_exits,
    mutations_marks,
    mutations_moving,
    mutations_nodes,
    mutations_repairs,
    mutations_servers,
    mutations_shape,
    mutations_tables,
)
from tests.simulation.regions.planting import MUTATIONS

__all__ = [
    "MUTATIONS",
    "mutations_balance",
    "mutations_claims",
    "mutations_crash",
    "mutations_exits",
    "mutations_marks",
    "mutations_moving",
    "mutations_nodes",
    "mutations_repairs",
    "mutations_servers",
    "mutations_shape",
    "mutations_tables",
]
